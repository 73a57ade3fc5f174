"""Rules for secrets that only their context shows: a key, a header, a parameter, a flag, a command.

Services whose tokens have no prefix (32 hexadecimal digits, a UUID, 52 characters of base 32) are
recognised here only.  The shape names the place and `accepts` decides about the value
(`secret_values`), because programs and manuals are full of such places without a secret.
Values in JSON are replaced whole (`redactor`).
"""

from collections.abc import Callable

from palyra.core.redaction.grammar import ANYWHERE, TOKEN, WORD, Rule, any_case
from palyra.core.redaction.key_names import BRIDGES, is_no_key, is_no_random_key
from palyra.core.redaction.secret_values import (
    is_basic,
    is_hash,
    is_key_of_network,
    is_lettered,
    is_login,
    is_no_example,
    is_opaque,
    is_password,
    is_random,
    is_strictly_drawn,
    is_typed_password,
)

# `=`, `:`, `=>`, `>` of XML, a column; `("…", "…")` and `("…")` of programs; the default in a block of
# HCL; and the bridges of words.  A subscript may end before it, empty as well.  Parentheses are
# escaped because the grammar has no nested groups.
_SEPARATOR = (
    r"""["'`\\]*\[?[\]\x29}]?[ \t]*"""
    r"""(?:[:=>|]|[|?][|?]=|["'][ \t]*\{[^{}]*default[ \t]*=|%3[ADad]|,[ \t]*\\*["']|\x28\\*["']|"""
    + "|".join(BRIDGES)
    + r""")[ \t>=]*["'`\\]*"""
)
# No `=` or `:`, so that no key begins inside it; the rest of a password that holds one is kept.
_VALUE = r"[A-Za-z0-9+/_.~!@#$%^*?\x80-\xff-]"
_OPAQUE = "[A-Za-z0-9+/_.~-]"
# Start of a key, of a part of one, or of a symbol; `arn:aws:secret:…` and `AWS::Secret` are no keys.
_PART = r"(?:^|[^:]|env:|<[a-z]+:|^:|[ \t\r\n{,\x28\[]:)"


def _utf8(word: str) -> str:
    return "".join(rf"\x{byte:02x}" for byte in word.encode())


def _keyed(
    name: str, word: str, start: str = _PART, accepts: Callable[[bytes], bool] = is_random
) -> Rule:
    spares = is_no_key if word not in _SAY_ENOUGH else _nothing
    value = f"{_VALUE}{{6,}}" if name == "password" else f"{_IDENTIFIER}{_VALUE}{{12,}}"
    return Rule(
        name, start, any_case(word), value,
        accepts=accepts, spares=spares, joint=_SEPARATOR,
    )  # fmt: skip


# An identifier before the secret half: `id:secret`, `K10…::server:…`.
_IDENTIFIER = "(?:[A-Za-z0-9+/_.~-]{12,}[:=]+[a-z]*[:-]*)?"
_SAY_ENOUGH = frozenset({"pass", "pw", "psk", "sshpass", "pass phrase"})


def _nothing(_before: bytes) -> bool:
    return False


# Words before `key` that need no further check; `is_no_random_key` decides about the others.
_KEYS = (
    "api", "access", "secret", "private", "signing", "encryption", "auth", "account", "master",
    "service", "preshared",
)  # fmt: skip

_KEYED = (
    *(
        _keyed("password", word, start, is_password)
        for word, start in (
            ("password", _PART), ("passwd", _PART), ("passphrase", _PART), ("passcode", _PART),
            ("passwort", _PART), ("kennwort", _PART), ("wachtwoord", _PART), ("senha", WORD), ("heslo", WORD),
            ("pass phrase", _PART), ("pwd", WORD), ("pass", WORD), ("pw", WORD), ("sshpass", WORD),
        )
    ),
    _keyed("password", "psk", WORD, is_key_of_network),
    # A literal behind a blank: `#define WIFI_PASSWORD "…"`, `with password '…'`
    *(
        Rule(name, WORD if word in _SAY_ENOUGH else _PART, any_case(word) + r"""[ \t]+\\*["'`]""", f"{_VALUE}{{{least},}}",
             accepts=accepts, spares=is_no_random_key)
        for name, word, least, accepts in (
            ("password", "password", 6, is_key_of_network), ("password", "pass", 6, is_key_of_network),
            ("password", "psk", 8, is_key_of_network),
            ("token", "token", 12, is_opaque), ("secret", "secret", 12, is_opaque),
            ("api_key", "api key", 12, is_opaque),
        )
    ),
    # The same word in other languages, in UTF-8.
    Rule("password", WORD, "(?:" + "|".join(
            f"[{word[0].upper()}{word[0]}]{word[1:]}" if word[0].isalpha() else word for word in (
                "mot de passe", r"contrase\xc3\xb1a", "contrasena", "clave", "parola", r"has\xc5\x82o",
                r"l\xc3\xb6senord", "adgangskode", "salasana", r"jelsz\xc3\xb3", "kodeord",
                *(_utf8(word) for word in ("пароль", "密码", "密碼", "口令", "パスワード", "비밀번호")),
            )
         ) + ")", f"{_VALUE}{{6,}}", accepts=is_password, joint=_SEPARATOR),
    # Nothing but blanks and brackets between them: the value must certainly be a key.
    *(
        Rule(name, WORD, any_case(word) + r"[\]}]?(?:[ \t]|\\+t)+(?:[0-9][ \t]+)?[\[\x28<]?", f"{_OPAQUE}{{12,}}",
             accepts=is_opaque, spares=is_no_key)
        for name, word in (
            ("password", "password"), ("password", "passwort"), ("token", "token"), ("secret", "secret"),
            ("api_key", "api key"),
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


def _far_from(*commands: bytes) -> Callable[[bytes], bool]:
    def is_far(before: bytes) -> bool:
        return not any(command in before for command in commands)

    return is_far


_HEADERS = (
    Rule("authorization", WORD,
         any_case("authorization") + _SEPARATOR
         + r"""(?:[A-Za-z0-9-]{1,20}[ \t]+)?(?:[A-Za-z_]+=["']?)?""",
         "[A-Za-z0-9._~+/-]{16,}", accepts=is_random),
    Rule("authorization", WORD, any_case("authorization") + r"""[ \t]+\\*["'](?:[A-Za-z0-9-]{1,20}[ \t]+)?""",
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
         "(?:JSESSIONID|jsessionid|PHPSESSID|sessionid|session|connect\\.sid|ASP\\.NET_SessionId|laravel_session"
         "|user_session|BW_SESSION|_gh_sess|__Secure-[A-Za-z0-9_.-]+|__Host-[A-Za-z0-9_.-]+|SSESS[0-9a-f]+"
         "|wordpress_logged_in_[0-9a-f]+|remember_me|remember_user_token|li_at|XSRF-TOKEN|sid"
         "|csrftoken|d_session|rack\\.session|express\\.sid|next-auth\\.session-token)=\\\\*[\"']?",
         r"[A-Za-z0-9+/_.~%!*-]{16,}", accepts=is_random),
    # A line of Netscape's cookie file.
    Rule("cookie", ANYWHERE, r"\t(?:TRUE|FALSE)\t[0-9]+\t[^\t\r\n]+\t", r"[^\t\r\n ]{12,}",
         accepts=is_random),
    Rule("token", WORD, "(?:" + "|".join(map(any_case, (
             "x-honeycomb-team", "x-insert", "x-hub-signature", "x-hub-signature-256",
             "cb-access-sign", "x-mbx", "x-vault", "x-consul", "x-splunk-request-channel",
             "x-jfrog-art", "api-sign", "genie", "ssws", "splunk", "sso-key", "zoho-oauthtoken", "apikey", "apptoken",
         ))) + r")(?:-[Aa][Pp][Ii])?[\"']?[ \t:=]+[\"']?", f"{_OPAQUE}{{16,}}", accepts=is_opaque),
    # The answer of a digest (RFC 7616), a signature of Hawk, a token among subprotocols (RFC 6455).
    Rule("authorization", "[ ,]", r"""(?:response|mac|oauth_signature)=\\*["']""", "[A-Za-z0-9+/%]{24,}",
         accepts=is_random, spares=_far_from(b"nonce", b"oauth")),
    Rule("token", WORD, any_case("sec-websocket-protocol")
         + r"""["']*[ \t]*[:=,][ \t"']*(?:[A-Za-z0-9._-]+,[ \t]*)*""", f"{_OPAQUE}{{20,}}",
         accepts=is_opaque),
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


# The start of a flag; the name of its command must be near (`CONTEXT_BYTES`).
BLANK = "[ \t]"
_ARGUMENT = r"""[^\s"'\\$<>{}]"""


_THEN = r"[\s\S]*"  # anything between; a short name such as `7z` alone is part of many a digest


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
    # An application password in groups of four; short flags in one.
    Rule("password", BLANK, r"""(?:-[A-Za-z]*[uU]|--user)[ \t=]*["'\\]*""",
         r"""[^\s"'\\:$<>{}/]+:[^\s"'\\$<>{}]{3,}(?: [A-Za-z0-9]{4}){3,}""", after="[\"']", accepts=is_no_example,
         spares=_far_from(b"curl"), hint="curl"),
    # A login as a flag: any command when the password looks random, curl in any case.
    Rule("password", BLANK, r"""(?:-u|-U|--user|--proxy-user|--auth|-a)[ \t=]*["'\\]*""",
         r"""[^\s"'\\:$<>{}/]+:[^\s"'\\$<>{}:]{3,}""", accepts=is_login,
         hint=r"[ \t](?:-u|-U|--user|--proxy-user|--auth|-a)[ \t=]*[\"'\\]*[^\s\"'\\:$<>{}/]+:"),
    Rule("password", BLANK, r"""(?:-[A-Za-z]*[uU]|--user|--proxy-user)[ \t=]*["'\\]*""",
         r"""[^\s"'\\:$<>{}/]+:[^\s"'\\$<>{}]{3,}""", accepts=is_no_example,
         spares=_far_from(b"curl"), hint="curl"),
    Rule("password", ANYWHERE, any_case("password") + r"""["'\\]*[ \t]*[:=][ \t]*["'\\]*""",
         "[A-Za-z]{4} [A-Za-z]{4} [A-Za-z]{4} [A-Za-z]{4}", accepts=is_lettered),
    *(
        _command(flag, *commands)
        for flag, commands in (
            ("-p[ \\t]*", ("mysql", "mariadb", "sshpass", "mongo", "mysqldump")),
            ("(?:-p|--password)[ \\t]+", ("docker", "podman", "az login", "oc login", "helm",
                                          "login", "ccloud", "sshpass", "crane", "skopeo", "twine",
                                          "cypher-shell", "vsce", "ncftp", "psexec", "useradd",
                                          "usermod", "argocd", "snowsql")),
            ("(?:/rp|/p)[ \\t]+", ("schtasks",)),
            ("-[AX][ \\t]+", ("snmpwalk", "snmpget", "snmpset", "snmpbulk")),
            ("-[tk][ \\t]+", ("codecov", "doctl auth", "nuget push")),
            ("--(?:body|value|secret-string|secret-value)[ \\t=]+",
             ("gh secret", "put-parameter", "secretsmanager", "keyvault", "glab variable")),
            ("(?:-a|--pass)[ \\t]+", ("redis-cli", "valkey-cli")),
            ("(?:-w|-y)[ \\t]+", ("ldapsearch", "ldapadd", "ldapmodify", "ldapwhoami")),
            ("-P[ \\t]*", ("sqlcmd", "bcp ", "unzip", "zip ", "ipmitool", "pscp", "plink", "mosquitto_")),
            ("-p", ("7z", "7za", "unrar", "rar ")),
            ("(?:/p:|/pass:|/password:)", ("xfreerdp", "net use", "psexec", "runas")),
            ("-U[ \\t]+[\"']?[^% \\t\\r\\n]+%", ("smbclient", "rpcclient", "smbmap")),
        )
    ),
    Rule("password", ANYWHERE, r"-(?:passin|passout|pass|k)[ \t]+[\"'\\]*(?:pass:)?",
         f"{_ARGUMENT}{{4,}}", accepts=is_typed_password, spares=_far_from(b"openssl"),
         hint="openssl"),
    Rule("token", WORD, r"(?:vault|doppler|op|fly|flyctl|gh|glab|npm|wandb|hf|huggingface-cli|railway)"
         r"[ \t]+(?:auth[ \t]+)?login[ \t]+", f"{_OPAQUE}{{16,}}", accepts=is_random),
    Rule("token", WORD, r"wandb[ \t]+login[ \t]+", f"{_OPAQUE}{{16,}}", accepts=is_random),
    Rule("password", WORD, r"(?:echo|printf)[ \t]+(?:-n[ \t]+)?[\"'\\]*(?:[a-z_][a-z0-9_-]*:)?", f"{_ARGUMENT}{{6,}}",
         after=r"""["'\\]*[ \t]*\|[ \t]*(?:sudo|docker|podman|helm|gh|vault|npm|op|wrangler|gcloud|cryptsetup|chpasswd|passwd|kinit)\b""",
         accepts=is_password),
    # --password x and --from-literal=password=x of letters alone
    Rule("password", BEFORE_FLAG, _PASSWORD_FLAG, "[A-Za-z]{16,}",
         accepts=is_lettered, hint=_PASSWORD_FLAG),
    # --token x, --api-key x, -storepass x
    Rule("password", BEFORE_FLAG, f"-?(?:{_FLAG_WORDS})[ \\t]+[\"'\\\\]*",
         f"{_VALUE}{{6,}}", accepts=is_password, spares=is_no_random_key, hint=_FLAG_HINT),
    Rule("password", "[a-z0-9]-", f"(?:{_FLAG_WORDS})[ \\t]+[\"'\\\\]*", f"{_VALUE}{{6,}}",
         accepts=is_password, spares=is_no_random_key, hint=_FLAG_HINT),
    # --privateKey x, --apiToken x, and a key that looks like one
    Rule("password", BEFORE_FLAG, "-?[a-z]+(?:Password|Passphrase|Token|Secret|Key|Credentials)[ \\t=]+[\"'\\\\]*",
         f"{_VALUE}{{12,}}", accepts=is_opaque),
    Rule("api_key", BEFORE_FLAG, "-?key[ \\t=]+[\"'\\\\]*", f"{_OPAQUE}{{16,}}", accepts=is_opaque),
    # `ENV API_KEY x`, `setenv`, `aws configure set aws_secret_access_key x`, `npm config set …`
    Rule("secret", WORD, "(?:ENV|ARG|setenv|SetEnv|setx|set[ \\t]+-[a-zA-Z]+|set-env|config[ \\t]+set|configure[ \\t]+set|secret[ \\t]+put"
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
    Rule("password", ANYWHERE, r"\$(?:1|2[abxy]|5|6|7|y|apr1|gy|argon2id?|scrypt|md5)\$",
         r"[A-Za-z0-9./$=,+-]{20,}", accepts=is_hash),
    # Programs that take a login as arguments
    Rule("password", WORD,
         r"""(?:auth=|HTTPBasicAuth|BasicAuth|basic_auth|basicAuth|SetBasicAuth|PSCredential|WiFi\.begin)[ \t]*\x28?\\*["'][^"'\r\n]*["'],[ \t]*\\*["']""",
         rf"{_VALUE}{{6,}}", accepts=is_password),
    Rule("password", WORD, r"""(?:getConnection|DBI->connect|mysqli|mysqli_connect|PDO|jwt\.sign|jwt\.verify)\x28[^\r\n;\x28]*,[ \t]*\\*["']""",
         "[A-Za-z0-9+/_-]{8,}", accepts=is_strictly_drawn),
    Rule("password", WORD, r"""ConvertTo-SecureString[ \t]+(?:-String[ \t]+)?\\*["']""", r"""[^\s"'\\]{4,}""",
         accepts=is_typed_password),
    Rule("password", WORD, r"""assword[^\r\ns]*send[ \t]+\\*["']""", r"""[^\s"'\\]{4,}""", accepts=is_typed_password),
    # Commands whose secrets only their position shows
    *(
        Rule("password", WORD, before, f"{_ARGUMENT}{{4,}}", accepts=is_typed_password)
        for before in (
            r"net[ \t]+use[ \t]+(?:[A-Za-z*]:?[ \t]+)?\\\\[^ \t\r\n]+[ \t]+(?:/user:[^ \t]+[ \t]+)?",
            r"net[ \t]+user[ \t]+[A-Za-z0-9._-]+[ \t]+",
            r"rabbitmqctl[ \t]+(?:add_user|change_password|authenticate_user)[ \t]+[^ \t]+[ \t]+",
            r"htpasswd[ \t]+-[A-Za-z]*b[A-Za-z]*[ \t]+(?:[^ \t\r\n]*\.[^ \t\r\n]*[ \t]+)?[A-Za-z0-9_-]+[ \t]+",
            r"poetry[ \t]+config[ \t]+http-basic[^ \t]*[ \t]+[^ \t]+[ \t]+",
            r"bw[ \t]+unlock[ \t]+", r"lftp[ \t]+-u[ \t]+[^, \t]+,",
            r"\+login[ \t]+[A-Za-z0-9_-]+[ \t]+", r"mysqladmin[ \t]+(?:-[^ \t\r\n]+[ \t]+)?(?:[^ \t\r\n]+[ \t]+)?password[ \t]+",
            r"connect[ \t]+[^ \t\r\n]+[ \t]+password[ \t]+",
        )
    ),
    Rule("password", WORD, r"(?:AUTH[ \t]+default|requirepass)[ \t]+", f"{_ARGUMENT}{{8,}}", accepts=is_password),
    Rule("password", "(?:^|[\r\n]|[\r\n][ \t]+)", "password[ \t]+", r"[^\s]{6,}", accepts=is_password),
    Rule("token", WORD, r"ngrok[ \t]+(?:config[ \t]+)?(?:add-)?authtoken[ \t]+", f"{_OPAQUE}{{20,}}", accepts=is_opaque),
    Rule("secret", WORD, r"""(?:secrets?[ \t]+set|config:set|env:set|--from-literal)[ \t=]+["']?[A-Za-z0-9_.-]+=\\*["']?""",
         f"{_VALUE}{{8,}}", accepts=is_random),
    # Logins of Oracle and of Go's driver for MySQL
    Rule("password", WORD, r"(?:sqlplus[ \t]+|jdbc:oracle:[a-z0-9]+:)[A-Za-z0-9_$#]+/", r"[^\s@\"'/]{4,}", after="@",
         accepts=is_typed_password),
    Rule("password", ANYWHERE, ":", r"[^\s:@/\"'\x28\[\]{}$<>]{4,}", after=r"@(?:tcp|tcp6|unix)\x28", accepts=is_typed_password),
    # Addresses that are keys by themselves
    Rule("url_path", ANYWHERE, "/(?:reset-password|password-reset|reset_password|reset|verify|verify-email|confirm|magic-link|invite|key|token|apikey|api_key|secret|secrets)/",
         "[A-Za-z0-9_.-]{16,}", accepts=is_opaque),
    Rule("url_userinfo", ANYWHERE, "://", "[A-Za-z0-9]{16,}", after="@", accepts=is_strictly_drawn),
    # A phrase of words that is a wallet's key (BIP 39)
    Rule("mnemonic", WORD, r"""(?:mnemonic|MNEMONIC|Mnemonic|seed_phrase|SEED_PHRASE|seed phrase|recovery phrase)["'\\]*[ \t]*[:=][ \t]*["'\\]*""",
         "[a-z]+[ ,]+" * 11 + "[a-z ,]+"),
    # The private half of a key in JSON (RFC 7518, 6)
    Rule("private_key", ANYWHERE, r"""\\*"(?:d|k)\\*"[ \t]*:[ \t]*\\*\"""", "[A-Za-z0-9_-]{40,}", accepts=is_strictly_drawn,
         spares=_far_from(b"kty", b'"e"', b'"crv"', b'"y"', b'"AQAB', b'"x"', b'e\\"')),
    Rule("private_key", ANYWHERE, r"""\\*"(?:p|q|dp|dq|qi)\\*"[ \t]*:[ \t]*\\*\"""", "[A-Za-z0-9_-]{80,}", accepts=is_strictly_drawn),
)  # fmt: skip

# Rows with the same boundary stand together: the scanner then follows it once for all of them.
CONTEXT_RULES: tuple[Rule, ...] = tuple(
    sorted((*_HEADERS, *_COMMANDS, *_KEYED, *_ADDRESSES), key=lambda rule: rule.start)
)
