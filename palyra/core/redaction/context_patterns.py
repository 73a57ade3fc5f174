"""Secrets told by what stands beside them: a key, a header, a parameter, a flag, a command.

Services whose tokens have no prefix (32 hexadecimal digits, a UUID, 52 characters of base 32) are
recognised here only.  The shape names the place and `accepts` decides about the value
(`core.secret_values`), because programs and manuals are full of such places without any secret.
A structure's values are replaced whole (`core.redact`).
"""

from collections.abc import Callable

from palyra.core.redaction.grammar import ANYWHERE, TOKEN, WORD, Rule, any_case
from palyra.core.redaction.key_names import is_no_key, is_no_random_key
from palyra.core.redaction.secret_values import (
    is_basic,
    is_lettered,
    is_login,
    is_no_example,
    is_opaque,
    is_password,
    is_random,
    is_typed_password,
)

# `=`, `:`, `=>`, `>` of XML, a column; `("…", "…")` and `("…")` of programs; `name: K` above
# `value: V`; the default in a block of HCL.  A subscript may end before it.  Parentheses are escaped
# because the grammar has no nested groups.
_SEPARATOR = (
    r"""["'`\\]*\]?[ \t]*"""
    r"""(?:[:=>|]|[|?][|?]=|["'][ \t]*\{[^{}]*default[ \t]*=|%3[ADad]|,[ \t]*\\*["']|\x28\\*["']|[ \t]+is:?[ \t]+|[ \t\r\n,;]+\\*["']?[Vv]alue\\*["']?[ \t]*[:=])"""
    r"""[ \t>=]*["'`\\]*"""
)
# No `=` or `:`, so that no key begins inside it: what is left of a password that holds one stays.
_VALUE = r"[A-Za-z0-9+/_.~!@#$%^*?\x80-\xff-]"
_OPAQUE = "[A-Za-z0-9+/_.~-]"
# Of a key, or all of it, or a symbol; `arn:aws:secret:…` and `AWS::Secret` are none.
_PART = r"(?:^|[^:]|env:|^:|[ \t\r\n{,\x28\[]:)"


def _keyed(
    name: str, word: str, start: str = _PART, accepts: Callable[[bytes], bool] = is_random
) -> Rule:
    least = 6 if accepts is is_password else 12
    spares = is_no_key if word not in {"pass", "pw"} else _nothing
    return Rule(
        name, start, any_case(word), f"{_VALUE}{{{least},}}",
        accepts=accepts, spares=spares, joint=_SEPARATOR,
    )  # fmt: skip


def _nothing(_before: bytes) -> bool:
    return False


# The words before `key` that say enough; any other goes by `is_no_random_key`.
_KEYS = (
    "api", "access", "secret", "private", "signing", "encryption", "auth", "account", "master",
    "service", "preshared",
)  # fmt: skip

_KEYED = (
    *(
        _keyed("password", word, start, is_password)
        for word, start in (
            ("password", _PART), ("passwd", _PART), ("passphrase", _PART), ("passcode", _PART),
            ("passwort", _PART), ("pwd", WORD), ("pass", WORD), ("pw", WORD),
        )
    ),
    _keyed("secret", "secret"),
    _keyed("token", "token"),
    *(_keyed("api_key", f"{word} key") for word in _KEYS),
    _keyed("api_key", "secret key base"),
    Rule("private_key", _PART, any_case("key data") + _SEPARATOR, "[A-Za-z0-9+/=]{40,}",
         accepts=is_random),
    *(
        Rule(name, _PART, any_case(word), f"{_OPAQUE}{{16,}}",
             accepts=is_opaque, spares=is_no_random_key, joint=_SEPARATOR)
        for name, word in (
            ("api_key", "key"), ("token", "pat"), ("token", "auth"), ("secret", "creds"),
            ("secret", "credentials"), ("secret", "credential"), ("token", "bearer"),
            ("token", "jwt"), ("secret", "salt"), ("secret", "cred"),
        )
    ),
    # The name of a service is context enough for what has no prefix.
    Rule(
        "service", _PART,
        "(?:" + "|".join(
            any_case(word)
            for word in (
                "datadog", "heroku", "linode", "vultr", "hetzner", "scaleway", "cloudflare",
                "fastly", "netlify", "railway", "rollbar", "mixpanel", "logtail", "splunk",
                "newrelic", "sumologic", "pagerduty", "travis", "codecov", "drone", "jenkins",
                "twilio", "postmark", "sparkpost", "mailjet", "intercom", "zendesk", "asana",
                "trello", "dropbox", "cohere", "mistral", "deepseek", "assemblyai", "deepgram",
                "serper", "stability", "baseten", "wandb", "plaid", "algolia", "segment",
                "amplitude", "bugsnag", "coveralls", "gitea", "forgejo", "bitbucket", "okta",
                "auth0", "zerotier", "twingate", "upstash", "turso", "confluent", "elastic",
                "opsgenie", "honeybadger", "adafruit", "kraken", "kucoin", "binance", "bittrex",
                "yandex", "squarespace", "telegram", "facebook", "twitter", "linkedin",
            )
        ) + ")" + _SEPARATOR,
        f"{_OPAQUE}{{20,}}", accepts=is_opaque,
    ),
)  # fmt: skip

_HEADERS = (
    Rule("authorization", WORD,
         any_case("authorization") + _SEPARATOR
         + r"""(?:[A-Za-z0-9-]{1,20}[ \t]+)?(?:[A-Za-z_]+=["']?)?""",
         "[A-Za-z0-9._~+/-]{16,}", accepts=is_random),
    Rule("basic", WORD, rf"{any_case('basic')}[ \t]+", "[A-Za-z0-9+/_-]{8,}=*", accepts=is_basic),
    # `auth` of Docker's configuration, `_auth` of npm's.
    Rule("basic", WORD, any_case("auth") + r"""["'\\]*[ \t]*[:=][ \t"'\\]*""",
         "[A-Za-z0-9+/_-]{8,}=*", accepts=is_basic),
    Rule("cookie", WORD, any_case("cookie") + r""":[ \t]*[A-Za-z0-9_.-]+=""",
         r"[A-Za-z0-9+/_.~%!*(), =;-]{12,}", accepts=is_random),
    Rule("cookie", WORD,
         r"(?:--cookie|-b)[ \t=]+[\"'\\]*[A-Za-z0-9_.-]+=",
         r"[A-Za-z0-9+/_.~%!*(), =;-]{12,}", accepts=is_random),
    Rule("cookie", TOKEN,
         "(?:JSESSIONID|PHPSESSID|sessionid|session|connect\\.sid|ASP\\.NET_SessionId|laravel_session"
         "|user_session|_gh_sess|__Secure-[A-Za-z0-9_.-]+|__Host-[A-Za-z0-9_.-]+|SSESS[0-9a-f]+"
         "|wordpress_logged_in_[0-9a-f]+|remember_me|remember_user_token|li_at|XSRF-TOKEN|sid"
         "|csrftoken|d_session|rack\\.session|express\\.sid|next-auth\\.session-token)=",
         r"[A-Za-z0-9+/_.~%!*-]{16,}", accepts=is_random),
    # A line of Netscape's cookie file.
    Rule("cookie", ANYWHERE, r"\t(?:TRUE|FALSE)\t[0-9]+\t[^\t\r\n]+\t", r"[^\t\r\n ]{12,}",
         accepts=is_random),
    Rule("token", WORD, "(?:" + "|".join(map(any_case, (
             "x-honeycomb-team", "x-insert", "x-hub-signature", "x-hub-signature-256",
             "cb-access-sign", "x-mbx", "x-vault", "x-consul", "x-splunk-request-channel",
             "genie", "ssws", "splunk", "sso-key", "zoho-oauthtoken", "apikey", "apptoken",
         ))) + r")[ \t:=]+", f"{_OPAQUE}{{16,}}", accepts=is_opaque),
)  # fmt: skip

_PARAMETERS = (
    "key", "sig", "signature", "code", "auth", "sign", "hapikey", "appid", "app key", "jwt", "sid",
    "session", "ticket", "otp", "pin", "credential", "apikey", "hdnea", "hdnts", "policy", "st",
)  # fmt: skip
_ADDRESSES = (
    *(
        Rule("url_query", ANYWHERE, f"(?:[?&#;]|%26|&amp;){any_case(word)}",
             "[A-Za-z0-9._~%+/-]{12,}", accepts=is_random, joint="=")
        for word in _PARAMETERS
    ),
    *(
        Rule("url_query", ANYWHERE, any_case("x-") + f"(?:{'|'.join(map(any_case, ('amz', 'goog', 'oss', 'cos', 'bce')))})"
             + any_case(f"-{word}") + "=", "[A-Za-z0-9._~%+/-]{12,}", accepts=is_random)
        for word in ("signature", "credential")
    ),
    Rule("url_query", WORD, any_case("signature") + "[=:][ \t\"']*", "[A-Za-z0-9+/]{40,}",
         accepts=is_random),
)  # fmt: skip


# What a flag stands behind; a command's own name must be near (`CONTEXT_BYTES`).
BLANK = "[ \t]"
_ARGUMENT = r"""[^\s"'\\$<>{}]"""


def _far_from(*commands: bytes) -> Callable[[bytes], bool]:
    def is_far(before: bytes) -> bool:
        return not any(command in before for command in commands)

    return is_far


_THEN = r"[\s\S]*"  # a short name such as `7z` stands in many a digest


def _command(flag: str, *commands: str) -> Rule:
    return Rule(
        "password", BLANK, rf"""{flag}["'\\]*""", f"{_ARGUMENT}{{4,}}",
        accepts=is_typed_password,
        spares=_far_from(*(command.encode() for command in commands)),
        hint=f"(?:{'|'.join(commands)}){_THEN}{flag.partition('[')[0]}",
    )  # fmt: skip


_FLAG_WORDS = "|".join(
    map(
        any_case,
        ("password", "passwd", "passphrase", "pass", "token", "secret", "api key", "apikey",
         "access key", "secret key", "key", "credentials", "auth", "pat", "pwd", "storepass",
         "keypass", "passin", "passout"),
    )
)  # fmt: skip
_FLAG_HINT = rf"--?[A-Za-z0-9_-]*(?:{_FLAG_WORDS})[ \t]"
BEFORE_FLAG = r"""(?:^|[ \t"'\[,\x28])-"""
_PASSWORD_FLAG = (
    "-?(?:from-literal[ \\t=]+|set[ \\t=]+|build-arg[ \\t=]+)?[A-Za-z0-9_.-]*"
    f"(?:{'|'.join(map(any_case, ('password', 'passwd', 'passphrase', 'storepass', 'keypass')))})"
    "[ \\t=]+[\"'\\\\]*"
)

_COMMANDS = (
    # A login as a flag: any command when the password looks random, curl in any case.
    Rule("password", BLANK, r"""(?:-u|-U|--user|--proxy-user|--auth|-a)[ \t=]*["'\\]*""",
         r"""[^\s"'\\:$<>{}/]+:[^\s"'\\$<>{}:]{3,}""", accepts=is_login,
         hint=r"[ \t](?:-u|-U|--user|--proxy-user|--auth|-a)[ \t=]*[\"'\\]*[^\s\"'\\:$<>{}/]+:"),
    Rule("password", BLANK, r"""(?:-u|-U|--user|--proxy-user)[ \t=]*["'\\]*""",
         r"""[^\s"'\\:$<>{}/]+:[^\s"'\\$<>{}]{3,}""", accepts=is_no_example,
         spares=_far_from(b"curl"), hint="curl"),
    *(
        _command(flag, *commands)
        for flag, commands in (
            ("-p[ \\t]*", ("mysql", "mariadb", "sshpass", "mongo", "mysqldump")),
            ("(?:-p|--password)[ \\t]+", ("docker", "podman", "az login", "oc login", "helm",
                                          "login", "ccloud", "sshpass", "crane", "skopeo")),
            ("(?:-a|--pass)[ \\t]+", ("redis-cli", "valkey-cli")),
            ("(?:-w|-y)[ \\t]+", ("ldapsearch", "ldapadd", "ldapmodify", "ldapwhoami")),
            ("-P[ \\t]*", ("sqlcmd", "bcp ", "unzip", "zip ", "ipmitool", "pscp", "plink")),
            ("-p", ("7z", "7za", "unrar", "rar ")),
            ("(?:/p:|/pass:|/password:)", ("xfreerdp", "net use", "psexec", "runas")),
        )
    ),
    Rule("password", ANYWHERE, r"-(?:passin|passout|pass|k)[ \t]+[\"'\\]*(?:pass:)?",
         f"{_ARGUMENT}{{4,}}", accepts=is_typed_password, spares=_far_from(b"openssl"),
         hint="openssl"),
    Rule("token", WORD, r"(?:vault|doppler|op|fly|flyctl|gh|glab|npm|wandb|hf|huggingface-cli|railway)"
         r"[ \t]+(?:auth[ \t]+)?login[ \t]+", f"{_OPAQUE}{{16,}}", accepts=is_random),
    Rule("token", WORD, r"wandb[ \t]+login[ \t]+", f"{_OPAQUE}{{16,}}", accepts=is_random),
    Rule("password", WORD, r"echo[ \t]+(?:-n[ \t]+)?[\"'\\]*", f"{_ARGUMENT}{{6,}}",
         after=r"""["'\\]*[ \t]*\|[ \t]*(?:sudo|docker|podman|helm|gh|vault|npm|op)[ \t]""",
         accepts=is_password),
    # --password x and --from-literal=password=x of letters alone
    Rule("password", BEFORE_FLAG, _PASSWORD_FLAG, "[A-Za-z]{16,}",
         accepts=is_lettered, hint=_PASSWORD_FLAG),
    # --token x, --api-key x, -storepass x
    Rule("password", BEFORE_FLAG, f"-?(?:{_FLAG_WORDS})[ \\t]+[\"'\\\\]*",
         f"{_VALUE}{{6,}}", accepts=is_password, spares=is_no_random_key, hint=_FLAG_HINT),
    Rule("password", "[a-z0-9]-", f"(?:{_FLAG_WORDS})[ \\t]+[\"'\\\\]*", f"{_VALUE}{{6,}}",
         accepts=is_password, spares=is_no_random_key, hint=_FLAG_HINT),
    # `ENV API_KEY x`, `setenv`, `aws configure set aws_secret_access_key x`, `npm config set …`
    Rule("secret", WORD, "(?:ENV|ARG|setenv|set-env|config[ \\t]+set|configure[ \\t]+set|secret[ \\t]+put"
         f")[ \\t]+[A-Za-z0-9_./:-]*(?:{_FLAG_WORDS})[ \\t]+[\"'\\\\]*", f"{_VALUE}{{6,}}",
         accepts=is_password),
    # .netrc and the like
    Rule("password", WORD, r"login[ \t]+[^ \t\r\n]+[ \t\r\n]+password[ \t]+", r"[^ \t\r\n]{3,}",
         accepts=is_typed_password),
    Rule("password", ANYWHERE, any_case("identified by") + r"[ \t]+\\*['\"]", f"{_VALUE}{{6,}}",
         accepts=is_typed_password),
    # .pgpass: host:port:database:user:password
    Rule("password", "(?:^|\\n)", r"[A-Za-z0-9.*-]+:[0-9*]+:[A-Za-z0-9_*-]+:[A-Za-z0-9_.*@-]+:",
         r"[^\s:]{4,}", accepts=is_typed_password),
    # /etc/shadow and htpasswd
    Rule("password", ANYWHERE, r":\$(?:1|2[aby]|5|6|7|y|apr1|gy|argon2id?)\$", r"[A-Za-z0-9./$=,]{20,}",
         accepts=is_random),
)  # fmt: skip

# Rows with the same boundary stand together: the scanner then follows it once for all of them.
CONTEXT_RULES: tuple[Rule, ...] = tuple(
    sorted((*_HEADERS, *_COMMANDS, *_KEYED, *_ADDRESSES), key=lambda rule: rule.start)
)
