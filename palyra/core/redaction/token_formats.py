"""Token formats of vendors: one row per format that has a prefix or shape of its own.

A row is data that can be compared with a public rule set: id, description, expression and the
page of the vendor that documents the format.  `patterns` turns the rows into rules, and
`Format.keywords` gives the literals that every match holds.  The class in `[redacted:<class>]` is
the part of the id before its first hyphen.  Formats without a prefix of their own (32 hexadecimal
digits of Datadog, the UUID of Heroku) are recognised by their context: see `context_patterns`.

An expression follows `grammar`: units with quantifiers, no nested group.
Lengths are lower bounds, because vendors lengthen their tokens.  At one place the first row that
matches wins, so the longer prefix comes first.

A row that begins with a random part (`marked`) is recognised by its mark.  The engine would follow
such a row from each character of a text, so one rule finds any long run and compares it with them.
"""

import re
from collections.abc import Iterator
from itertools import starmap
from typing import NamedTuple

MIN_BITS_A_CHARACTER = 1.5  # Shannon entropy: only fillers such as `xxxx` and `0000` have less

_A = "[A-Za-z0-9]"
_U = "[A-Za-z0-9_-]"
_B = "[A-Za-z0-9+/_-]"  # a run of base64: the check rejects what holds `+` or `/`
_H = "[0-9a-f]"
_X = "[0-9A-Fa-f]"
_L = "[a-z0-9]"
_UUID = f"{_X}{{8}}-{_X}{{4}}-{_X}{{4}}-{_X}{{4}}-{_X}{{12}}"


class Format(NamedTuple):
    """One documented token format."""

    id: str
    description: str
    regex: str
    source: str = ""  # page of the vendor, without the scheme
    check: str = "drawn"  # drawn: a digit or mixed case; entropy: only that; run: drawn, no `+` `/`; marked: see below; own: always
    is_rare: bool = False  # a prefix that needs no boundary on its left

    @property
    def name(self) -> str:
        """Class in the marker."""
        return self.id.partition("-")[0]

    @property
    def keywords(self) -> tuple[str, ...]:
        """The longest literal that every match holds, in lower case; empty when there is none."""
        literals = sorted(_literals(self.regex), key=len)
        return (literals[-1].lower(),) if literals and len(literals[-1]) > 1 else ()


_LITERAL = re.compile(
    r"\[\^?\]?(?:\\.|[^\]\\])*\](?:[*+?]|\{[^}]*\})?|\(\?:[^()]*\)[*+?]?|\\b|.[*?]|\\([^a-z])|(.)"
)


def _literals(regex: str) -> Iterator[str]:
    run = ""
    for match in _LITERAL.finditer(regex):
        character = match[1] or match[2]
        if character is None:
            yield run
            run = ""
        else:
            run += character
    yield run


FORMATS: tuple[Format, ...] = tuple(starmap(Format, (
    # --- This daemon -----------------------------------------------------------------------------
    ("palyra-token", "Bearer token of this daemon", f"pal_{_U}{{40,}}", "", "own"),
    # --- Source hosts ----------------------------------------------------------------------------
    ("github-token", "GitHub access, OAuth, app, installation and refresh tokens", f"gh[oprsu]_{_A}{{36,}}", "docs.github.com/en/authentication/keeping-your-account-and-data-secure/about-authentication-to-github"),
    ("github-app-jwt", "GitHub token that wraps a JWT", rf"gh[oprsu]_{_U}+\.{_U}{{20,}}\.{_U}{{20,}}"),
    ("github-fine-grained", "GitHub fine-grained access token", "github_pat_[A-Za-z0-9_]{22,}", "docs.github.com/en/authentication", "drawn", True),
    ("gitlab-token", "GitLab personal, deploy, feed, runner and trigger tokens", r"gl(?:pat|dt|rt|rtr|ft|imt|agent|oas|soat|cbt|ptt|ffct|wt|ct)-[A-Za-z0-9_.-]{20,}", "docs.gitlab.com/security/tokens/"),
    ("gitlab-runner-registration", "GitLab runner registration token", f"GR1348941{_U}{{20,}}", "docs.gitlab.com/security/tokens/"),
    ("gitlab-session", "GitLab session cookie", f"_gitlab_session={_H}{{32}}", "docs.gitlab.com/security/tokens/", "drawn", True),
    ("bitbucket-app-password", "Bitbucket app password and repository token", f"ATBB{_A}{{28,}}", "support.atlassian.com/bitbucket-cloud/docs/app-passwords/"),
    ("sourcegraph-token", "Sourcegraph access token", "sg[pd]_[A-Za-z0-9_]{40,}", "sourcegraph.com/docs/cli/how-tos/creating_an_access_token"),
    ("sourcegraph-gateway", "Sourcegraph Cody gateway token", f"slk_{_H}{{64}}"),
    # --- Clouds ----------------------------------------------------------------------------------
    ("aws-key-pair", "AWS access key id with its secret beside it", r"""A(?:KIA|SIA)[A-Z0-9]{16}["']?[,:;|\s]+["']?[A-Za-z0-9+/]{40}""", "docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html"),
    ("aws-access-key", "AWS access key ids, long-lived and temporary", r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16,}\b", "docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html"),
    ("aws-bedrock", "Amazon Bedrock API key, long-lived", "ABSK[A-Za-z0-9+/]{100,}=*", "docs.aws.amazon.com/bedrock/latest/userguide/api-keys.html"),
    ("aws-bedrock-short", "Amazon Bedrock API key, short-lived", "bedrock-api-key-[A-Za-z0-9+/=_-]{40,}", "docs.aws.amazon.com/bedrock/latest/userguide/api-keys.html"),
    ("aws-mws", "Amazon marketplace key", f"amzn\\.mws\\.{_UUID}"),
    ("aws-lwa", "Login with Amazon client secret", f"amzn1\\.oa2-cs\\.v1\\.{_H}{{64}}"),
    ("aws-lwa-token", "Login with Amazon tokens", r"Atz[ar]\|[A-Za-z0-9_+/=-]{60,}"),
    ("aws-session", "AWS session token", "(?:FwoGZXIvYXdz|IQoJb3JpZ2lu)[A-Za-z0-9+/=]{60,}", "docs.aws.amazon.com/IAM/latest/UserGuide/id_credentials_temp.html"),
    ("google-api-key", "Google API key", f"AIza{_U}{{35,}}", "cloud.google.com/docs/authentication/api-keys"),
    ("google-api-key-bound", "Google API key bound to a service account", f"AQ\\.A{_U}{{40,}}", "cloud.google.com/docs/authentication/api-keys"),
    ("google-oauth-secret", "Google OAuth client secret", f"GOCSPX-{_U}{{20,}}", "developers.google.com/identity/protocols/oauth2"),
    ("google-oauth-token", "Google OAuth access token", r"ya29\.[A-Za-z0-9_.-]{20,}", "developers.google.com/identity/protocols/oauth2"),
    ("google-refresh-token", "Google OAuth refresh token", rf"1//0{_U}{{40,}}", "developers.google.com/identity/protocols/oauth2"),
    ("google-storage-hmac", "Google Cloud Storage HMAC access id", r"GOOG1?[A-Z0-9]{20,}\b", "cloud.google.com/storage/docs/authentication/hmackeys"),
    ("google-fcm", "Firebase Cloud Messaging server key", rf"AAAA{_U}{{7}}:APA91b{_U}{{100,}}"),
    ("azure-ad-secret", "Microsoft Entra client secret", r"[A-Za-z0-9_~.]{3}[78]Q~[A-Za-z0-9_~.-]{31,34}", "learn.microsoft.com/entra/identity-platform/", "marked"),
    ("azure-storage-key", "Azure storage, batch and Cosmos DB keys", "[A-Za-z0-9+/]{76}(?:\\+ASt|ACDb|\\+ABa)[A-Za-z0-9+/]{6}==", "learn.microsoft.com/purview/sit-defn-azure-storage-account-key", "marked"),
    ("azure-key-marked", "Azure keys with a service signature", "[A-Za-z0-9+/]{33}(?:AIoT|\\+ASb|\\+AEh|\\+ARm|AzSe|AzFu|AzCa|APIM)[A-Za-z0-9+/]{5,}=*", "learn.microsoft.com/azure/", "marked"),
    ("azure-devops-marked", "Azure DevOps access token, 84 characters", f"{_A}{{76}}AZDO{_A}{{4}}", "learn.microsoft.com/azure/devops/organizations/accounts/use-personal-access-tokens-to-authenticate", "marked"),
    ("azure-ai-marked", "Azure AI service key, 84 characters", f"{_A}{{52}}JQQJ99{_A}{{26}}", "learn.microsoft.com/azure/ai-services/", "marked"),
    ("azure-registry-marked", "Azure container registry password", "[A-Za-z0-9+/]{42}\\+ACR[A-Za-z0-9]{6}", "learn.microsoft.com/azure/container-registry/", "marked"),
    ("digitalocean-token", "DigitalOcean personal, OAuth and refresh tokens", f"do[opr]_v1_{_H}{{64,}}", "docs.digitalocean.com/reference/api/create-personal-access-token/"),
    ("digitalocean-model", "DigitalOcean model access key", f"sk-do-{_U}{{40,}}", "docs.digitalocean.com/products/genai-platform/"),
    ("scaleway-access-key", "Scaleway access key", r"SCW[A-Z0-9]{17}\b", "www.scaleway.com/en/docs/iam/how-to/create-api-keys/"),
    ("cloudflare-origin-ca", "Cloudflare origin CA key", f"v1\\.0-{_H}{{24}}-{_H}{{100,}}", "developers.cloudflare.com/fundamentals/api/get-started/ca-keys/"),
    ("cloudflare-token", "Cloudflare API tokens with a prefix", f"cf(?:ut|at|k|oat)_{_U}{{30,}}", "developers.cloudflare.com/fundamentals/api/"),
    ("heroku-token", "Heroku API token", f"HRKU-{_U}{{30,}}", "devcenter.heroku.com/articles/authentication"),
    ("heroku-managed-inference", "Heroku managed inference key", f"inf-{_UUID}", "devcenter.heroku.com/articles/heroku-inference"),
    ("vercel-token", "Vercel tokens with a prefix", f"vc[prkaic]_{_A}{{24,}}", "vercel.com/docs/rest-api"),
    ("vercel-blob", "Vercel blob token", f"vercel_blob_rw_{_A}+_{_A}{{20,}}", "vercel.com/docs/vercel-blob", "drawn", True),
    ("netlify-token", "Netlify personal, build, OAuth and client tokens", f"nf[pcobu]_{_A}{{36,}}", "docs.netlify.com/api/get-started/"),
    ("render-key", "Render API key", f"rnd_{_A}{{28,}}", "render.com/docs/api"),
    ("render-deploy-hook", "Render deploy hook", rf"api\.render\.com/deploy/srv-{_L}+\?key={_U}{{8,}}", "render.com/docs/deploy-hooks"),
    ("fly-token", "Fly.io access token", "fm[12][ar]?_[A-Za-z0-9+/=_,-]{60,}", "fly.io/docs/security/tokens/"),
    ("fly-token-old", "Fly.io access token, old form", f"fo1_{_U}{{40,}}", "fly.io/docs/security/tokens/"),
    ("alibaba-access-key", "Alibaba Cloud access key id", f"LTAI{_A}{{12,}}", "www.alibabacloud.com/help/en/ram/"),
    ("alibaba-sts", "Alibaba Cloud temporary access key id", rf"STS\.N{_A}{{20,}}", "www.alibabacloud.com/help/en/ram/"),
    ("tencent-secret-id", "Tencent Cloud secret id", f"AKID{_A}{{28,}}", "www.tencentcloud.com/document/product/598"),
    ("volcengine-key", "Volcengine access key", f"AKLT{_A}{{40,}}", "www.volcengine.com/docs/6291"),
    ("yandex-api-key", "Yandex Cloud API key", f"AQVN{_U}{{35,}}", "yandex.cloud/docs/iam/concepts/authorization/api-key"),
    ("yandex-iam-token", "Yandex Cloud IAM token", rf"t1\.[A-Z0-9a-z_-]+=*\.{_U}{{60,}}=*", "yandex.cloud/docs/iam/concepts/authorization/iam-token"),
    ("yandex-access-key", "Yandex Cloud static and OAuth keys", f"(?:YCA[JM]E|YC[MNP]|y[0-3]_){_U}{{22,}}", "yandex.cloud/docs/iam/concepts/authorization/"),
    ("exoscale-key", "Exoscale API key", r"EXO[0-9a-f]{24,}", "community.exoscale.com/documentation/iam/"),
    ("upcloud-token", "UpCloud API token", f"ucat_{_A}{{24,}}", "upcloud.com/docs/guides/getting-started-upcloud-api/"),
    ("runpod-key", "RunPod key", f"rpa_{_A}{{32,}}", "docs.runpod.io/get-started/api-keys"),
    ("openshift-token", "OpenShift user token", f"sha256~{_U}{{43}}", "docs.openshift.com/container-platform/latest/authentication/"),
    # --- Observability ---------------------------------------------------------------------------
    ("datadog-client", "Datadog client token", f"pub{_H}{{32}}", "docs.datadoghq.com/account_management/api-app-keys/"),
    ("newrelic-key", "New Relic keys", "NR(?:AK|II|IQ|JS|RA|AA|SP|LS|MA)-[A-Za-z0-9_-]{16,}", "docs.newrelic.com/docs/apis/intro-apis/new-relic-api-keys/"),
    ("newrelic-licence", "New Relic licence key", "[a-z0-9]{26,}(?:FFFFNRAL|NRAL)", "docs.newrelic.com/docs/apis/intro-apis/new-relic-api-keys/", "marked"),
    ("sentry-token", "Sentry user token", f"sntry[ua]_{_X}{{64}}", "docs.sentry.io/account/auth-tokens/"),
    ("sentry-org-token", "Sentry organization token", "sntrys_eyJ[A-Za-z0-9+/=_-]{40,}", "docs.sentry.io/account/auth-tokens/"),
    ("grafana-token", "Grafana service account and cloud tokens", "gl(?:sa|c)_[A-Za-z0-9+/=_]{32,}", "grafana.com/docs/grafana/latest/administration/service-accounts/"),
    ("grafana-api-key", "Grafana API key, old form", "eyJrIjoi[A-Za-z0-9+/_-]{40,}=*", "grafana.com/docs/grafana/latest/developers/http_api/auth/"),
    ("honeycomb-key", "Honeycomb ingest and management keys", f"hc[abcx][ilmx][kcm]_{_A}{{24,}}", "docs.honeycomb.io/configure/environments/manage-api-keys/"),
    ("dynatrace-token", "Dynatrace token", r"dt0[a-z][0-9]{2}\.[A-Z0-9]{8,}\.[A-Z0-9]{40,}", "docs.dynatrace.com/docs/manage/identity-access-management/access-tokens-and-oauth-clients"),
    ("pagerduty-key", "PagerDuty API key", f"(?:pdus|pdeu)[+_]{_U}{{20,}}", "support.pagerduty.com/main/docs/api-access-keys"),
    ("pagerduty-user", "PagerDuty user key", rf"u\+{_U}{{18}}\b", "support.pagerduty.com/main/docs/api-access-keys"),
    ("pagerduty-integration", "PagerDuty integration address", rf"events\.pagerduty\.com/integration/{_L}{{32}}"),
    ("posthog-key", "PostHog project, personal, feature-flag and OAuth keys", f"ph[acrsxo][a-z]?_{_A}{{32,}}", "posthog.com/docs/api"),
    ("snyk-token", "Snyk tokens with a prefix", rf"snyk_(?:uat|sat|rat|cli)\.{_H}{{8}}\.[A-Za-z0-9._-]{{20,}}", "docs.snyk.io/snyk-api/authentication-for-api"),
    ("elastic-key", "Elastic Cloud key", "essu_[A-Za-z0-9+/]{50,}=*", "www.elastic.co/docs/deploy-manage/api-keys"),
    ("elastic-token", "Elasticsearch service token", "AAEAA[A-Za-z0-9+/_-]{40,}", "www.elastic.co/docs/reference/elasticsearch/", "run"),
    ("logfire-token", "Pydantic Logfire token", f"pylf_v[0-9]+_[a-z]{{2}}_{_A}{{40,}}", "logfire.pydantic.dev/docs/"),
    ("axiom-token", "Axiom API and personal tokens", f"xa(?:at|pt)-{_UUID}", "axiom.co/docs/reference/tokens"),
    ("launchdarkly-key", "LaunchDarkly SDK, mobile and API keys", f"(?:sdk|mob|api|rel|sse)-{_UUID}", "launchdarkly.com/docs/home/account/api"),
    ("statsig-key", "Statsig keys", f"(?:secret|console|client)-{_A}{{40,}}", "docs.statsig.com/sdk-keys/api-keys"),
    ("configcat-key", "ConfigCat key", f"configcat-sdk-[0-9]/{_U}{{22}}/{_U}{{22}}", "configcat.com/docs/sdk-reference/"),
    ("unleash-key", "Unleash client token", rf"(?:default|[*]|[a-z-]+):(?:[*]|development|production|[a-z]{{3,20}})\.{_H}{{56,}}", "docs.getunleash.io/reference/api-tokens-and-client-keys"),
    ("loggly-address", "Loggly ingest address", rf"logs-01\.loggly\.com/(?:inputs|bulk)/{_UUID}", "documentation.solarwinds.com/en/success_center/loggly/", "drawn", True),
    ("sumologic-address", "Sumo Logic collector address", rf"sumologic\.(?:com|net)/receiver/v1/http/{_U}{{60,}}=*", "help.sumologic.com/docs/send-data/hosted-collectors/http-source/", "drawn", True),
    ("healthchecks-ping", "Healthchecks ping address", rf"hc-ping\.com/{_UUID}", "healthchecks.io/docs/"),
    # --- Databases and configuration -------------------------------------------------------------
    ("planetscale-token", "PlanetScale tokens and passwords", "pscale_(?:tkn|pw|oauth|api|svc)_[A-Za-z0-9_=.-]{30,}", "planetscale.com/docs/concepts/planetscale-api-oauth-applications", "drawn", True),
    ("supabase-token", "Supabase access token", f"sbp_(?:v[0-9]_|oauth_)?{_H}{{40,}}", "supabase.com/docs/guides/api/api-keys"),
    ("supabase-key", "Supabase secret and publishable keys", f"sb_(?:secret|publishable|temp)_{_U}{{20,}}", "supabase.com/docs/guides/api/api-keys"),
    ("neon-key", "Neon API key", f"napi_{_L}{{60,}}", "neon.tech/docs/manage/api-keys"),
    ("neon-password", "Neon role password", f"npg_{_A}{{12,}}", "neon.tech/docs/"),
    ("xata-key", "Xata API key", f"xau_{_A}{{32,}}", "xata.io/docs/rest-api/authentication"),
    ("mongodb-service-account", "MongoDB Atlas service account", f"mdb_sa_(?:sk|id)_{_U}{{20,}}", "www.mongodb.com/docs/atlas/api/service-accounts/"),
    ("databricks-token", "Databricks personal access token", f"dapi{_H}{{32,}}(?:-[0-9])?", "docs.databricks.com/dev-tools/auth/pat.html"),
    ("databricks-secret", "Databricks OAuth secret", f"dose{_H}{{32,}}", "docs.databricks.com/dev-tools/auth/oauth-m2m.html"),
    ("databricks-deploy", "Databricks workspace tokens", f"dkea{_H}{{32,}}"),
    ("airtable-token", "Airtable personal access token", rf"pat{_A}{{14}}\.{_H}{{64}}", "airtable.com/developers/web/api/authentication"),
    ("airtable-key", "Airtable API key", r"key[A-Za-z0-9]{14}\b", "airtable.com/developers/web/api/authentication", "strict"),
    ("notion-token", "Notion integration token", f"ntn_{_A}{{40,}}", "developers.notion.com/docs/authorization"),
    ("notion-secret", "Notion integration secret and others of its form", f"secret_{_A}{{40,}}", "developers.notion.com/docs/authorization"),
    ("doppler-token", "Doppler tokens", r"dp\.(?:st|pt|ct|sa|scim|audit|said|scrt)\.[A-Za-z0-9_.-]{40,}", "docs.doppler.com/reference/auth-token-formats"),
    ("vault-token", "HashiCorp Vault service, batch and recovery tokens", rf"hv[bsr]\.{_U}{{24,}}", "developer.hashicorp.com/vault/docs/concepts/tokens"),
    ("vault-token-old", "HashiCorp Vault token before 1.10", rf"[sbr]\.{_A}{{24}}\b", "developer.hashicorp.com/vault/docs/concepts/tokens", "strict"),
    ("cockroach-key", "CockroachDB Cloud service account key", f"CCDB1_{_A}{{22}}_{_A}{{40}}", "www.cockroachlabs.com/docs/cockroachcloud/authorization"),
    ("boundary-token", "HashiCorp Boundary token", f"(?:at|s|r|neslat|clu|wi)_{_A}{{10}}_{_A}{{40,}}", "developer.hashicorp.com/boundary/docs/"),
    ("pulumi-token", "Pulumi access token", f"pul-{_H}{{40}}", "www.pulumi.com/docs/pulumi-cloud/access-management/access-tokens/"),
    ("terraform-token", "HCP Terraform token", rf"{_A}{{14}}\.atlasv1\.{_U}{{60,}}", "developer.hashicorp.com/terraform/cloud-docs/users-teams-organizations/api-tokens", "marked"),
    ("onepassword-service-account", "1Password service account token", f"ops_eyJ{_U}{{60,}}=*", "developer.1password.com/docs/service-accounts/"),
    ("onepassword-secret-key", "1Password secret key", "A3-[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})-[A-Z0-9]{5}-[A-Z0-9]{5}-[A-Z0-9]{5}", "support.1password.com/secret-key-security/"),
    ("infisical-token", "Infisical service token", rf"st\.{_H}{{24}}\.{_H}{{32}}\.{_H}{{32}}", "infisical.com/docs/documentation/platform/token"),
    ("infisical-token-short", "Infisical service token without identifier", rf"st\.{_A}{{8,}}-{_A}{{4,}}-[A-Za-z0-9.-]{{20,}}", "infisical.com/docs/documentation/platform/token"),
    ("bitwarden-token", "Bitwarden secrets manager token", rf"0\.{_UUID}\.{_A}{{30}}:[A-Za-z0-9+/]{{22}}==", "bitwarden.com/help/access-tokens/"),
    ("confluent-secret", "Confluent Cloud secret", "cflt[A-Za-z0-9+/]{50,}", "docs.confluent.io/cloud/current/security/authenticate/"),
    ("convex-key", "Convex deploy key", r"(?:prod|dev|preview):[a-z0-9-]+\|[A-Za-z0-9+/=_-]{40,}", "docs.convex.dev/cli/deploy-key-types"),
    ("tinybird-token", "Tinybird token", rf"p\.eyJ{_U}{{20,}}\.{_U}{{20,}}", "www.tinybird.co/docs"),
    ("astra-token", "DataStax Astra token", rf"AstraCS:{_A}{{20,}}:{_H}{{64}}", "docs.datastax.com/en/astra-db-serverless/administration/manage-application-tokens.html"),
    ("aiven-token", "Aiven token and password", f"(?:aivenv1|AVNS)_{_U}{{19,}}", "aiven.io/docs/platform/concepts/authentication-tokens"),
    ("clickhouse-key", "ClickHouse Cloud key secret", rf"4b1d{_A}{{38}}\b", "clickhouse.com/docs/en/cloud/manage/openapi"),
    ("dbt-token", "dbt Cloud token", f"dbt[ucsp]_{_U}{{36,}}", "docs.getdbt.com/docs/dbt-cloud-apis/authentication"),
    ("snowflake-token", "Snowflake session token", r"ver:[0-9]-hint:[0-9]+-ETMs[A-Za-z0-9+/=-]{40,}"),
    ("mapbox-token", "Mapbox secret and public tokens", rf"[stp]k\.eyJ{_U}{{40,}}\.{_U}{{20,}}", "docs.mapbox.com/help/getting-started/access-tokens/"),
    # --- Payment and commerce --------------------------------------------------------------------
    ("stripe-key", "Stripe secret, restricted and organization keys", f"(?:sk|rk|sk_org|ek|uk)_(?:live|test|prod|org)_{_A}{{16,}}", "docs.stripe.com/keys"),
    ("stripe-webhook", "Webhook signing secret of Stripe, Svix, Clerk and Resend", "whsec_[A-Za-z0-9+/]{24,}=*", "docs.stripe.com/webhooks"),
    ("square-token", "Square access token", f"EAAA{_B}{{56,}}", "developer.squareup.com/docs/build-basics/access-tokens", "run"),
    ("square-secret", "Square application secret", f"sq0(?:csp|atp|idp|acp|cbp)-{_U}{{22,}}", "developer.squareup.com/docs/build-basics/access-tokens"),
    ("facebook-token", "Meta access token", f"EAA[A-Za-z]{_B}{{60,}}", "developers.facebook.com/docs/facebook-login/guides/access-tokens", "run"),
    ("instagram-token", "Instagram and Threads access token", f"(?:IGQV|IGAA|THAA){_U}{{60,}}", "developers.facebook.com/docs/instagram"),
    ("braintree-token", "PayPal and Braintree access token", rf"access_token\$(?:production|sandbox)\${_L}{{16}}\${_H}{{32}}", "developer.paypal.com/braintree/docs/guides/extend/oauth/access-tokens"),
    ("paypal-token", "PayPal access token", f"A(?:21AA|23AA|101\\.){_U}{{60,}}", "developer.paypal.com/api/rest/authentication/"),
    ("adyen-key", "Adyen API key", "AQE[a-z0-9][A-Za-z0-9+/_.^&*%=-]{60,}", "docs.adyen.com/development-resources/api-credentials/"),
    ("razorpay-key", "Razorpay key id", f"rzp_(?:live|test)_{_A}{{14,}}", "razorpay.com/docs/api/authentication/"),
    ("shopify-token", "Shopify admin, app, storefront and partner tokens", f"(?:shpat|shpca|shppa|shpss|shpua|shpsa|shpit|shptka|shcli|atkn|prtapi)_{_X}{{32,}}", "shopify.dev/docs/apps/build/authentication-authorization"),
    ("plaid-token", "Plaid access token", f"(?:access|public|link|processor)-(?:sandbox|development|production)-{_UUID}", "plaid.com/docs/api/tokens/"),
    ("paddle-key", "Paddle API key", f"pdl_(?:live|sdbx|ntfset|sdb|test)_(?:apikey_|ntfset_)?{_A}{{20,}}[A-Za-z0-9_]*", "developer.paddle.com/api-reference/about/api-keys"),
    ("flutterwave-key", "Flutterwave keys", f"FLW(?:SEC|PUB)K(?:_TEST|_LIVE)?-{_A}{{12,}}[A-Za-z0-9-]*", "developer.flutterwave.com/docs/authentication"),
    ("gocardless-token", "GoCardless token", f"(?:live|sandbox)_{_U}{{40}}", "developer.gocardless.com/api-reference/"),
    ("mollie-key", "Mollie keys", f"(?:live|test|access|org)_{_A}{{30,}}", "docs.mollie.com/docs/authentication"),
    ("mercadopago-token", "Mercado Pago access token", f"(?:APP_USR|TEST)-[0-9]{{10,}}-[0-9]{{6}}-{_H}{{32}}-?[0-9_A-Z]*", "www.mercadopago.com/developers"),
    ("coinbase-key", "Coinbase developer platform key name", f"organizations/{_UUID}/apiKeys/{_UUID}", "docs.cdp.coinbase.com/get-started/docs/cdp-api-keys"),
    ("polar-token", "Polar tokens", f"polar_(?:oat|pat|at_u|at_o|rt|rt_u|whs|cst|ci|cs|ac)_{_A}{{24,}}", "docs.polar.sh"),
    ("easypost-key", "EasyPost keys", f"EZ[AT]K{_A}{{54}}", "docs.easypost.com/docs/authentication"),
    ("duffel-token", "Duffel token", f"duffel_(?:live|test)_{_U}{{40,}}", "duffel.com/docs"),
    ("shippo-token", "Shippo token", f"shippo_(?:live|test)_{_H}{{40}}", "docs.goshippo.com"),
    ("xendit-key", "Xendit key", f"xnd_(?:production|development)_{_A}{{40,}}", "docs.xendit.co"),
    ("chapa-key", "Chapa key", f"CHA(?:SEC|PUB)K(?:_TEST)?-{_A}{{32,}}", "developer.chapa.co"),
    ("liveblocks-key", "Liveblocks key", f"sk_(?:prod|dev)_{_U}{{24,}}", "liveblocks.io/docs"),
    ("upstash-signing", "Upstash QStash signing key", f"sig_{_A}{{24,}}", "upstash.com/docs/qstash"),
    # --- Chat, mail and telephone ----------------------------------------------------------------
    ("slack-token", "Slack tokens", "xox[abceoprsd]-[A-Za-z0-9-]{10,}(?:%[0-9A-F]{2})*[A-Za-z0-9-]*", "api.slack.com/concepts/token-types"),
    ("slack-rotating", "Slack configuration tokens", r"xoxe(?:\.xox[bp])?-[0-9]-[A-Za-z0-9-]{10,}", "api.slack.com/concepts/token-rotation"),
    ("slack-app", "Slack app-level token", "xapp-[0-9]-[A-Za-z0-9-]{10,}", "api.slack.com/concepts/token-types"),
    ("slack-workflow", "Slack legacy workflow token", f"xwfp-{_U}{{20,}}", "api.slack.com/concepts/token-types"),
    ("slack-webhook", "Slack webhook, workflow and trigger addresses", r"hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/[A-Z0-9]{8,}/[A-Z0-9]{8,}/[A-Za-z0-9/]{16,}", "api.slack.com/messaging/webhooks", "drawn", True),
    ("discord-webhook", "Discord webhook address", rf"discord(?:app)?\.com/api/(?:v[0-9]+/)?webhooks/[0-9]+/{_U}{{60,}}", "discord.com/developers/docs/resources/webhook", "drawn", True),
    ("discord-bot", "Discord bot token", rf"[MNO][A-Za-z0-9_-]{{22,}}\.{_U}{{6,7}}\.{_U}{{27,}}", "discord.com/developers/docs/reference"),
    ("discord-mfa", "Discord user token", rf"mfa\.{_U}{{80,}}", "discord.com/developers/docs/reference"),
    ("telegram-bot", "Telegram bot token", f"[0-9]{{8,10}}:A[A-Z]{_U}{{32,}}", "core.telegram.org/bots/api", "drawn", True),
    ("teams-webhook", "Microsoft Teams webhook address", rf"(?:outlook\.office|[a-z0-9-]+\.webhook\.office|outlook\.office365)\.com/webhook(?:b2)?/{_UUID}@{_UUID}/IncomingWebhook/{_A}{{32}}[/0-9a-zA-Z_-]*", "learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/"),
    ("googlechat-webhook", "Google Chat webhook address", rf"chat\.googleapis\.com/v1/spaces/{_U}+/messages\?[A-Za-z0-9&_%=.-]{{40,}}", "developers.google.com/workspace/chat/quickstart/webhooks"),
    ("zapier-webhook", "Addresses of hooks at Zapier, Make and Pipedream", rf"(?:hooks\.zapier\.com/hooks/catch/[0-9]+/|hook\.[a-z0-9]+\.make\.com/|hook\.integromat\.com/|[a-z0-9]+\.m\.pipedream\.net/){_U}{{6,}}", "help.zapier.com"),
    ("ifttt-webhook", "IFTTT trigger address", rf"maker\.ifttt\.com/trigger/{_U}+/(?:json/)?with/key/{_U}{{20,}}", "ifttt.com/maker_webhooks"),
    ("feishu-webhook", "Feishu and Lark bot address", rf"open\.(?:feishu\.cn|larksuite\.com)/open-apis/bot/v[0-9]/hook/{_UUID}", "open.feishu.cn/document/"),
    ("wecom-webhook", "WeCom bot address", rf"qyapi\.weixin\.qq\.com/cgi-bin/webhook/send\?key={_UUID}", "developer.work.weixin.qq.com/document/"),
    ("chat-webhook", "Mattermost and Rocket.Chat hook addresses", rf"/hooks/(?:[a-z0-9]{{26}}|{_A}{{17,24}}/{_A}{{32,}})\b", "developers.mattermost.com/integrate/webhooks/incoming/", "drawn", True),
    ("matrix-token", "Matrix access token of Synapse", f"sy[tr]_[A-Za-z0-9+/=]+_{_A}{{20}}_{_A}{{6}}", "element-hq.github.io/synapse/latest/"),
    ("ntfy-token", "ntfy access token", f"tk_{_L}{{29}}", "docs.ntfy.sh/config/"),
    ("youtube-stream", "YouTube stream key behind its address", rf"/live2/{_L}{{4}}-{_L}{{4}}-{_L}{{4}}-{_L}{{4}}(?:-{_L}{{4}})?", "support.google.com/youtube/answer/2907883", "entropy", True),
    ("twilio-key", "Twilio API key", f"SK{_X}{{32,}}", "www.twilio.com/docs/iam/api-keys"),
    ("twilio-account", "Twilio account with its token beside it", f"AC{_H}{{32}}:{_H}{{32}}", "www.twilio.com/docs/iam/api"),
    ("sendgrid-key", "SendGrid API key", rf"SG\.{_U}{{16,}}\.{_U}{{32,}}", "www.twilio.com/docs/sendgrid/ui/account-and-settings/api-keys"),
    ("mailgun-key", "Mailgun keys", f"(?:key|pubkey)-{_H}{{32,}}", "documentation.mailgun.com/docs/mailgun/api-reference/"),
    ("mailgun-signing", "Mailgun key of the newer form", f"{_H}{{32}}-{_H}{{8}}-{_H}{{8}}", "documentation.mailgun.com/docs/mailgun/api-reference/", "marked"),
    ("mailchimp-key", "Mailchimp key", r"[0-9a-f]{32}-us[0-9]{1,2}\b", "mailchimp.com/developer/marketing/guides/quick-start/", "marked"),
    ("mandrill-key", "Mandrill key", f"md-{_U}{{22}}", "mailchimp.com/developer/transactional/guides/quick-start/"),
    ("brevo-key", "Brevo keys", f"x(?:keysib|smtpsib)-{_H}{{64}}-{_A}{{16}}", "developers.brevo.com/docs/getting-started"),
    ("resend-key", "Resend API key", f"re_{_A}{{8,}}_{_A}{{20,}}", "resend.com/docs/dashboard/api-keys/introduction"),
    ("mailersend-key", "MailerSend key", f"mlsn\\.{_H}{{64}}", "developers.mailersend.com/general.html"),
    ("onesignal-key", "OneSignal key", f"os_v2_(?:app|org)_{_L}{{40,}}", "documentation.onesignal.com/docs/keys-and-ids"),
    ("intercom-token", "Intercom access token", r"dG9r[A-Za-z0-9+/_-]{40,}=*", "developers.intercom.com/docs/build-an-integration/learn-more/authentication"),
    ("linear-key", "Linear API and OAuth tokens", f"lin_(?:api|oauth|wh)_{_A}{{32,}}", "linear.app/developers"),
    ("atlassian-token", "Atlassian API and app tokens", "AT(?:ATT|CTT|STT|TA)[0-9A-Z]?[A-Za-z0-9_=-]{40,}", "support.atlassian.com/atlassian-account/docs/manage-api-tokens-for-your-atlassian-account/"),
    ("asana-token", "Asana personal access token", rf"[0-9]/[0-9]{{14,}}(?:/[0-9]{{14,}})?:{_A}{{32}}", "developers.asana.com/docs/personal-access-token"),
    ("figma-token", "Figma access tokens", f"fig[duorst]h?_{_U}{{38,}}", "www.figma.com/developers/api"),
    ("frameio-token", "Frame.io token", f"fio-u-{_U}{{60,}}", "developer.adobe.com/frameio/"),
    ("readme-key", "ReadMe key", f"rdme_{_L}{{60,}}", "docs.readme.com/main/reference/intro/authentication"),
    ("pushbullet-token", "Pushbullet token", rf"o\.{_A}{{32}}\b", "docs.pushbullet.com", "strict"),
    ("ably-key", "Ably key", rf"{_U}{{6}}\.{_U}{{6}}:{_U}{{20,}}", "ably.com/docs/auth/basic", "strict"),
    ("typeform-token", "Typeform token", f"tfp_{_U}{{20,}}[A-Za-z0-9_.=-]*", "www.typeform.com/developers/get-started/personal-access-token/"),
    ("dropbox-token", "Dropbox access token", rf"sl\.(?:u\.)?{_U}{{60,}}", "developers.dropbox.com/oauth-guide"),
    ("hubspot-token", "HubSpot private app token", f"pat-[a-z]{{2}}[0-9]-{_UUID}", "developers.hubspot.com/docs/guides/apps/private-apps/overview"),
    ("postman-key", "Postman API key", f"PMAK-{_H}{{24}}-{_H}{{34}}", "learning.postman.com/docs/developer/postman-api/authentication/"),
    ("ghost-key", "Ghost admin API key", f"{_H}{{24}}:{_H}{{64}}", "ghost.org/docs/admin-api/"),
    ("flagsmith-key", "Flagsmith server key", rf"ser\.{_A}{{22}}", "docs.flagsmith.com"),
    ("authress-key", "Authress service key", rf"sc_{_L}{{5,}}\.{_L}{{4,6}}\.acc[_-][a-z0-9-]{{10,32}}\.[A-Za-z0-9+/_=-]{{30,}}", "authress.io/knowledge-base/"),
    ("contentful-token", "Contentful management token", f"CFPAT-{_U}{{40,}}", "www.contentful.com/developers/docs/references/authentication/"),
    ("sanity-token", "Sanity token", f"sk{_A}{{140,}}", "www.sanity.io/docs/http-auth"),
    ("calcom-key", "Cal.com key", f"cal_(?:live_|test_)?{_A}{{28,}}", "cal.com/docs/api-reference"),
    ("clickup-token", "ClickUp personal token", "pk_[0-9]{5,}_[A-Z0-9]{28,}", "developer.clickup.com/docs/authentication"),
    ("klaviyo-key", "Klaviyo private key", f"pk_{_X}{{34,}}", "developers.klaviyo.com/en/docs/authenticate_"),
    ("zoho-token", "Zoho tokens", rf"1000\.{_H}{{32}}\.{_H}{{32}}", "www.zoho.com/accounts/protocol/oauth.html"),
    ("salesforce-token", "Salesforce session and refresh tokens", rf"(?:00D{_A}{{12,15}}![A-Za-z0-9._]{{80,}}|5Aep861{_A}+[A-Za-z0-9._]{{40,}}|3MVG9{_A}+[A-Za-z0-9._]{{40,}})", "help.salesforce.com"),
    ("telnyx-key", "Telnyx API key", f"KEY{_X}{{32}}_{_A}{{20,}}", "developers.telnyx.com/docs/messaging/getting-started"),
    ("beamer-token", "Beamer token", "b_[A-Za-z0-9=_/-]{44}", "www.getbeamer.com/api", "strict"),
    # --- Package registries ----------------------------------------------------------------------
    ("npm-token", "npm access token", f"npm_{_A}{{36,}}", "docs.npmjs.com/about-access-tokens"),
    ("pypi-token", "PyPI API token", f"pypi-A{_U}{{40,}}", "pypi.org/help/"),
    ("rubygems-key", "RubyGems API key", f"rubygems_{_H}{{48}}", "guides.rubygems.org/api-key-scopes/"),
    ("crates-token", "crates.io token", f"cio{_A}{{32}}", "doc.rust-lang.org/cargo/reference/publishing.html"),
    ("nuget-key", "NuGet API key", r"oy2[a-z0-9]{43}\b", "learn.microsoft.com/nuget/nuget-org/publish-a-package"),
    ("docker-token", "Docker Hub personal and organization tokens", f"dckr_(?:pat|oat|otp)_{_U}{{20,}}", "docs.docker.com/security/for-developers/access-tokens/"),
    ("jfrog-key", "JFrog API key", f"AKC[a-zA-Z0-9]{_A}{{60,}}", "jfrog.com/help/r/jfrog-platform-administration-documentation/api-key"),
    ("jfrog-reference", "JFrog reference and identity tokens", f"cmVmd{_A}{{50,}}", "jfrog.com/help/r/jfrog-platform-administration-documentation/access-tokens"),
    ("clojars-token", "Clojars deploy token", f"CLOJARS_{_X}{{60}}", "github.com/clojars/clojars-web/wiki/Deploy-Tokens"),
    ("jsr-token", "Deno Deploy tokens", f"dd[pow]_{_A}{{32,}}", "docs.deno.com/deploy/"),
    ("conda-token", "Anaconda token in a channel address", rf"conda\.anaconda\.org/t/[a-z]{{2}}-{_UUID}", "www.anaconda.com/docs/", "drawn", True),
    ("openvsx-token", "Open VSX token", f"ovsx[ap]t_{_UUID}", "github.com/EclipseFdn/open-vsx.org/wiki"),
    # --- Continuous integration ------------------------------------------------------------------
    ("chromatic-token", "Chromatic project token", f"chpt_{_H}{{15}}", "www.chromatic.com/docs/"),
    ("swarm-token", "Docker Swarm join token", f"SWMTKN-1-{_L}{{50}}-{_L}{{25}}", "docs.docker.com/engine/swarm/join-nodes/"),
    ("k3s-token", "K3s join token", rf"K10{_H}{{64}}::[a-z]+:[A-Za-z0-9._-]{{16,}}", "docs.k3s.io/cli/token"),
    ("circleci-token", "CircleCI personal and project tokens", f"CCI(?:PAT|PRJ)_{_A}+_{_H}{{40,}}", "circleci.com/docs/managing-api-tokens/"),
    ("buildkite-token", "Buildkite tokens", f"bk(?:ua|pat|at|ct|aj|st|pi)_{_H}{{32,}}", "buildkite.com/docs/apis/managing-api-tokens"),
    ("octopus-key", "Octopus Deploy key", r"API-[A-Z0-9]{25,}\b", "octopus.com/docs/octopus-rest-api/how-to-create-an-api-key"),
    ("harness-token", "Harness access and service tokens", rf"(?:pat|sat)\.{_U}{{20,}}\.{_X}{{20,}}\.{_A}{{16,}}", "developer.harness.io/docs/platform/automation/api/add-and-manage-api-keys/"),
    ("sonarqube-token", "SonarQube user, project and global tokens", f"sq[upa]_{_X}{{40}}", "docs.sonarsource.com/sonarqube-server/latest/user-guide/managing-tokens/"),
    ("gitpod-token", "Gitpod token", "gitpod_pat_[A-Za-z0-9_.-]{24,}", "www.gitpod.io/docs"),
    ("launchable-token", "Launchable token", f"v1:[a-z0-9-]+/[a-z0-9-]+:{_H}{{40,}}"),
    ("prefect-key", "Prefect key", f"pn[ubs]_{_A}{{36,}}", "docs.prefect.io"),
    ("inngest-key", "Inngest signing key", f"signkey-[a-z]+-{_X}{{32,}}", "www.inngest.com/docs"),
    ("trigger-key", "Trigger.dev key", f"tr_(?:dev|prod|stg|pat|preview)_{_A}{{16,}}", "trigger.dev/docs/apikeys"),
    ("packagist-token", "Private Packagist tokens", f"packagist_(?:uut|out|ack|acs|aws)_{_X}{{32,}}", "packagist.com/docs/api"),
    # --- Tunnels and networks --------------------------------------------------------------------
    ("tailscale-key", "Tailscale keys", "tskey-[a-z]+-[A-Za-z0-9-]{16,}", "tailscale.com/kb/1085/auth-keys"),
    ("ngrok-token", "ngrok authtoken and API key", f"(?:ak_|cr_|2)[A-Za-z0-9]{{26,27}}_[0-9]?{_A}{{20,21}}", "ngrok.com/docs/agent/"),
    ("akamai-client", "Akamai EdgeGrid client and access tokens", f"akab-{_L}{{16}}-{_L}{{16}}", "techdocs.akamai.com/developer/docs/edgegrid"),
    ("cloudflare-tunnel", "Cloudflare tunnel token", "eyJhIjoi[A-Za-z0-9+/=_-]{60,}", "developers.cloudflare.com/cloudflare-one/connections/connect-networks/"),
    ("netbird-token", "NetBird token", f"nb[pst]_{_A}{{30,}}", "docs.netbird.io/how-to/access-netbird-public-api"),
    # --- AI providers ----------------------------------------------------------------------------
    ("anthropic-key", "Anthropic API, admin and OAuth keys", f"sk-ant-{_U}{{20,}}", "docs.anthropic.com/en/api/overview"),
    ("openrouter-key", "OpenRouter key", f"sk-or-v1-{_H}{{32,}}", "openrouter.ai/docs/api-reference/authentication"),
    ("langfuse-key", "Langfuse keys", f"[sp]k-lf-{_UUID}", "langfuse.com/docs"),
    ("openai-key", "OpenAI project, service account and admin keys", f"sk-(?:proj|svcacct|admin|None|service)-{_U}{{20,}}", "platform.openai.com/docs/api-reference/authentication"),
    ("openai-key-old", "OpenAI key, and the many services that copied its form", f"sk-{_A}{{20,}}", "platform.openai.com/docs/api-reference/authentication"),
    ("openai-key-other", "Keys of compatible services with a second prefix", f"sk-[a-z0-9]{{2,12}}-{_U}{{24,}}"),
    ("openai-session", "OpenAI session key", f"sess-{_A}{{40}}"),
    ("groq-key", "Groq key", f"gsk_{_A}{{40,}}", "console.groq.com/docs/quickstart"),
    ("xai-key", "xAI key", f"xai-{_A}{{60,}}", "docs.x.ai/docs/overview"),
    ("perplexity-key", "Perplexity key", f"pplx-{_A}{{40,}}", "docs.perplexity.ai"),
    ("hugging_face-token", "Hugging Face user and organization tokens", f"(?:hf|api_org|hf_oauth)_{_A}{{30,}}", "huggingface.co/docs/hub/security-tokens", "entropy"),
    ("replicate-token", "Replicate token", f"r8_{_A}{{37,}}", "replicate.com/docs/reference/http"),
    ("together-key", "Together key", f"tgp_v[0-9]_{_U}{{40,}}", "docs.together.ai"),
    ("fireworks-key", "Fireworks key", f"fw_{_A}{{22,}}", "docs.fireworks.ai"),
    ("cerebras-key", "Cerebras key", f"csk-{_A}{{40,}}", "inference-docs.cerebras.ai"),
    ("nvidia-key", "NVIDIA API key", f"nvapi-{_U}{{60,}}", "docs.nvidia.com/ngc/"),
    ("langsmith-key", "LangSmith key", f"lsv2_[a-z]{{2}}_{_H}{{32,}}[0-9a-f_]*", "docs.smith.langchain.com"),
    ("langsmith-key-old", "LangSmith key, old form", f"ls__{_H}{{32,}}", "docs.smith.langchain.com"),
    ("pinecone-key", "Pinecone key", f"pcsk_{_U}{{40,}}", "docs.pinecone.io/guides/projects/manage-api-keys"),
    ("tavily-key", "Tavily key", f"tvly-{_U}{{20,}}", "docs.tavily.com"),
    ("elevenlabs-key", "ElevenLabs key and others of its form", f"sk_{_A}{{32,}}", "elevenlabs.io/docs/api-reference/authentication"),
    ("voyage-key", "Voyage key", f"(?:pa|al)-{_U}{{40,}}", "docs.voyageai.com/docs/api-key-and-installation", "strict"),
    ("zhipu-key", "Zhipu key", rf"{_H}{{32}}\.{_A}{{16}}\b", "docs.z.ai", "strict"),
    ("composio-key", "Composio key", f"ak_{_U}{{20,}}", "docs.composio.dev", "strict"),
    ("modal-token", "Modal token id and secret", f"a[ks]-{_A}{{20,}}", "modal.com/docs/guide/modal-user-account-setup"),
    ("fal-key", "fal key", f"{_UUID}:{_H}{{32}}", "docs.fal.ai"),
    ("llamacloud-key", "LlamaCloud key", f"llx-{_A}{{40,}}", "docs.cloud.llamaindex.ai"),
    ("e2b-key", "E2B keys", f"(?:e2b|sk_e2b)_{_H}{{40,}}", "e2b.dev/docs"),
    ("firecrawl-key", "Firecrawl key", f"fc-{_H}{{32}}", "docs.firecrawl.dev"),
    ("brave-key", "Brave Search key", f"BSA{_U}{{27,29}}", "api-dashboard.search.brave.com", "strict"),
    ("jina-key", "Jina key", f"jina_{_U}{{50,}}", "jina.ai"),
    ("apify-token", "Apify token", f"apify_api_{_A}{{34,}}", "docs.apify.com/platform/integrations/api", "drawn", True),
    ("browserbase-key", "Browserbase key", f"bb_(?:live|test)_{_U}{{20,}}", "docs.browserbase.com"),
    ("mem0-key", "Mem0 key", f"m0-{_A}{{36,}}", "docs.mem0.ai"),
    ("cartesia-key", "Cartesia key", f"sk_car_{_U}{{20,}}", "docs.cartesia.ai"),
    ("wandb-key", "Weights & Biases key with a prefix", f"wandb_v[0-9]_{_U}{{40,}}", "docs.wandb.ai"),
    ("mixedbread-key", "Mixedbread key", f"mxb_{_A}{{32,}}", "www.mixedbread.com/docs"),
    ("zuplo-key", "Zuplo key", f"zpka_{_H}{{32}}_{_H}{{8}}", "zuplo.com/docs"),
    ("nomic-key", "Nomic key", f"nk-{_U}{{40,}}", "docs.nomic.ai", "strict"),
    ("predibase-token", "Predibase token", f"pb_{_U}{{20,}}", "docs.predibase.com", "strict"),
    ("friendli-token", "Friendli token", f"flp_{_A}{{40,}}", "friendli.ai/docs"),
    ("cursor-key", "Cursor key", f"(?:key_{_H}{{64}}|crsr_{_H}{{40,}})", "docs.cursor.com"),
    ("databento-key", "Databento key", f"db-{_A}{{29}}\\b", "databento.com/docs"),
    # --- Others ----------------------------------------------------------------------------------
    ("okta-token", "Okta API token", "00[A-Za-z0-9_-]{40}\\b", "developer.okta.com/docs/guides/create-an-api-token/", "strict"),
    ("permit-key", "Permit key", f"permit_key_{_A}{{60,}}", "docs.permit.io"),
    ("scalingo-token", "Scalingo token", f"tk-us-{_U}{{40,}}", "developers.scalingo.com"),
    ("radar-key", "Radar key", f"prj_(?:live|test)_(?:sk|pk)_{_H}{{40}}", "radar.com/documentation/api"),
    ("alchemy-address", "Alchemy, Infura and QuickNode addresses", rf"(?:\.g\.alchemy\.com/v[0-9]/|\.g\.alchemy\.com/nft/v[0-9]/|\.infura\.io/v3/|\.infura\.io/ws/v3/|\.quiknode\.pro/|rpc\.ankr\.com/[a-z_]+/|\.blastapi\.io/){_U}{{28,}}", "www.alchemy.com/docs", "drawn", True),
    ("settlemint-token", "SettleMint tokens", f"sm_(?:aat|pat|sat)_{_A}{{16,}}"),
    ("stytch-secret", "Stytch secret", f"secret-(?:live|test)-{_U}{{30,}}=*", "stytch.com/docs/api/authentication"),
    ("endorlabs-token", "Endor Labs token", f"endr\\+{_A}{{16}}", "docs.endorlabs.com"),
    ("definednetworking-token", "Defined Networking token", f"dnkey-{_U}{{26}}-{_U}{{52}}", "docs.defined.net"),
    ("devcycle-key", "DevCycle key", f"dvc_(?:server|client|mobile)_{_U}{{20,}}", "docs.devcycle.com"),
    ("onfido-token", "Onfido token", "api_(?:live|sandbox)(?:_us|_ca|_eu)?\\.[A-Za-z0-9_.-]{24,}", "documentation.onfido.com"),
    ("cloudinary-address", "Cloudinary address", f"cloudinary://[0-9]+:{_U}{{20,}}", "cloudinary.com/documentation"),
    ("adobe-secret", "Adobe client secret", f"p8e-{_U}{{32}}", "developer.adobe.com/developer-console/docs/"),
    ("twitter-bearer", "X bearer token", "AAAAAAAAAAAAAAAAAAAAA[A-Za-z0-9]{5,40}%[A-Za-z0-9%]{30,}", "docs.x.com/resources/fundamentals/authentication"),
    ("linkedin-secret", "LinkedIn secret", r"WPL_AP[01]\.[A-Za-z0-9+/=.]{16,}", "learn.microsoft.com/linkedin/"),
    ("twitch-token", "Twitch chat password", f"oauth:{_L}{{30}}", "dev.twitch.tv/docs/chat/"),
    ("maxmind-key", "MaxMind licence key", f"{_A}{{6}}_{_A}{{29}}_mmk", "dev.maxmind.com/geoip/", "marked"),
    ("intra42-secret", "Intra 42 client secret", f"s-s4t2(?:ud|af)-{_H}{{64}}", "api.intra.42.fr/apidoc"),
    ("lob-key", "Lob key", f"(?:live|test)_(?:pub_)?{_H}{{31,}}", "docs.lob.com"),
    ("rapid-key", "RapidAPI key", f"{_H}{{10}}msh{_H}{{15}}p1{_H}{{6}}jsn{_H}{{12}}", "docs.rapidapi.com", "marked"),
    ("sidekiq-url", "Sidekiq credentials", f"{_H}{{8}}:{_H}{{8}}@(?:gems|enterprise)\\.contribsys\\.com", "github.com/sidekiq/sidekiq/wiki"),
    ("tailscale-node", "Tailscale node key", f"(?:privkey|nodekey-priv|machinekey-priv):{_H}{{64}}"),
    ("wallet-extended-key", "Extended private key of a wallet", f"[xyzt]prv{_A}{{100,}}", "github.com/bitcoin/bips/blob/master/bip-0032.mediawiki"),
    ("nostr-key", "Nostr private key", f"nsec1{_L}{{58}}", "github.com/nostr-protocol/nips/blob/master/19.md"),
    ("nkey-seed", "NATS seed", r"S[ACUONX][A-Z2-7]{56}\b", "docs.nats.io/running-a-nats-service/configuration/securing_nats/auth_intro/nkey_auth"),
    ("ssh-certificate", "Private key of OpenSSH without its armour", "b3BlbnNzaC1rZXk[t]djEA[A-Za-z0-9+/=\\s]{60,}", "github.com/openssh/openssh-portable/blob/master/PROTOCOL.key"),
)))  # fmt: skip
