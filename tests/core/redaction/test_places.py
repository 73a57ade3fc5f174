"""Places a secret stands in: subscripts, hash rockets, HCL blocks, flags, literals of programs."""

import json
from base64 import b64encode
from collections.abc import Callable
from random import Random
from string import ascii_letters, ascii_lowercase, digits
from urllib.parse import quote, quote_plus

import pytest

from palyra.core.redaction.redactor import Redactor, StreamRedactor

REDACTOR = Redactor([])


def drawn(alphabet: str, size: int) -> str:
    """A value drawn with a fixed seed, so that no literal secret stands here."""
    random = Random(size)
    return "".join(random.choices(alphabet, k=size))


MIXED = drawn(ascii_letters + digits, 28)
LETTERS = drawn(ascii_letters, 24)
LOWER = drawn(ascii_lowercase, 24)
HEX = drawn("0123456789abcdef", 32)

PLACES = [
    # HCL
    'variable "db_password" {{ default = "{}" }}',
    'variable "db_password" {{\n  type      = string\n  sensitive = true\n  default   = "{}"\n}}',
    'variable "api_token" {{\n  description = "' + "long words " * 20 + '"\n  default = "{}"\n}}',
    "variable 'client_secret' {{ default='{}' }}",
    # literals of command lines
    "kubectl create secret generic db --from-literal=password={}",
    "kubectl create secret generic db --from-literal=api-key='{}' --from-literal=a=b",
    "kubectl create secret generic db --from-literal password={}",
    "docker run -e DB_PASSWORD={} app",
    "docker build --build-arg NPM_TOKEN={} .",
    "helm upgrade app --set auth.password={},image.tag=1",
    "helm upgrade app --set-string global.apiToken={}",
    "gh workflow run x -f client_secret={}",
    # hash rockets and symbols
    ":secret_key_base => '{}'",
    "{{ :password => '{}' }}",
    '{{:api_key=>"{}"}}',
    "  secret_key_base: {}",
    "connect(:host => 'db', :password => \"{}\")",
    "'client_secret' => '{}',",
    # subscripts
    "app.config['SECRET_KEY'] = '{}'",
    'os.environ["API_TOKEN"] = "{}"',
    "$config['db']['password'] = '{}';",
    'settings["SECRET_KEY"]="{}"',
    "config[:secret_key] = '{}'",
    "ENV['DB_PASSWORD'] ||= '{}'",
    "process.env['CLIENT_SECRET'] ??= '{}'",
    "headers[`X-Api-Key`] = `{}`",
    # literals of structs
    'Config{{APIKey: "{}"}}',
    'Config {{ api_key: "{}".to_string() }}',
    'new Client({{ clientSecret: "{}" }})',
    'export AWS_SECRET_ACCESS_KEY="{}"',
    '<add key="ApiSecret" value="{}"/>',
    'tool --password="{}"',
    'curl -u "a:{}" https://x',
    # a declaration with a type, the prefix of a literal, a default, an arrow
    'password: str = "{}"', "private readonly secret: string = '{}';", 'const SECRET: &str = "{}";',
    'Dim pwd As String = "{}"', 'char passwd[] = "{}";', 'TOKEN = f"{}"', "SECRET_KEY = b'{}'",
    'string dbPassword = @"{}";', "CREATE LOGIN a WITH PASSWORD = N'{}'", "(b'x-api-key', b'{}')",
    "process.env.JWT_SECRET || '{}'", 'const k = process.env.API_KEY ?? "{}"',
    'os.environ.get("API_TOKEN") or "{}"', 'password <- "{}"', "api_key -> {}", "API_TOKEN ?= {}",
    # a literal or a key behind a blank
    '#define WIFI_PASSWORD "{}"', 'set(API_TOKEN "{}")', "SetEnv DB_PASSWORD {}", "setx API_KEY {}",
    "set -gx API_TOKEN {}", "ALTER USER a WITH PASSWORD '{}';", 'poll h user "me" pass "{}"', ': PSK "{}"',
    "token [{}]", "use the token {} for staging", "password\t{}", 
    'proxy_set_header Authorization "Basic {}";',
    # YAML, XML, HTML, forms
    "password: |\n  {}\n", "password: >-\n  {}\n", "password: &pw {}", "password: !Sub '{}'",
    "api_key:\n  example: {}", "- name: DB_PASSWORD\n  value: {}", '<wsse:Password Type="x">{}</wsse:Password>',
    "<password><![CDATA[{}]]></password>", "<key>Password</key>\n<string>{}</string>",
    "<AdministratorPassword><Value>{}</Value></AdministratorPassword>",
    "<server><username>u</username><password>{}</password></server>",
    '<input name="api_token" type="hidden" value="{}"/>', '<meta name="csrf-token" content="{}">',
    'form-data; name="password"\r\n\r\n{}\r\n--b', "ParameterKey=DbPassword,ParameterValue={}",
    # prose, also of others
    "The password for bob is {}", "the admin password was set to {}", "Das Passwort lautet {}",
    "Passwort: {}", "mot de passe : {}", "contraseña: {}", "La clave es {}", "senha: {}", "La password è {}",
    "пароль: {}", "密码：{}", "パスワード: {}", "heslo: {}", "hasło: {}", "wachtwoord: {}", "password：{}",
    "Incorrect API key provided: {}", "401 invalid token '{}'", "pass_phrase={}", "psk={}",
    # arguments of programs
    "auth=('admin', '{}')", "HTTPBasicAuth('admin', '{}')", 'req.SetBasicAuth("admin", "{}")',
    "jwt.sign(payload, '{}')", 'DriverManager.getConnection(url, "root", "{}");', "new mysqli('h', 'root', '{}', 'db');",
    'WiFi.begin("home", "{}");', 
    # arguments of commands
    "AUTH default {}", 
    "account a\nuser me\npassword {}", "ngrok authtoken {}", "fly secrets set NAME={}",
    "config:set NAME={}", "SSHPASS={} sshpass -e ssh h", "keytool -storepass {} -keypass k12345", "atlas --privateKey {}",
    "cypress run --record --key {}", "buildkite-agent start --token {}", "tool --name start --next-token-secret {}",
    "echo 'root:{}' | chpasswd", "echo '{}' | wrangler secret put K", "$env:API_TOKEN = \"{}\"",
    # addresses and headers
    
    "https://{}@github.com/a/b.git", "https://x/reset-password/{}", "https://x/api/key/{}/do", "https://x/y;jsessionid={}?z",
    "X-JFrog-Art-Api: {}", "API-Sign: {}", "Sec-WebSocket-Protocol: bearer, {}",
    'Authorization: Digest username="a", nonce="n", uri="/", response="{}"', 'Authorization: Hawk id="a", nonce="n", mac="{}"',
    
    
]  # fmt: skip

# Arguments that are passwords for certain, whatever word they are.
TYPED = [
    "codecov -t {}", "twine upload -u u -p {} dist/a", "cypher-shell -u neo4j -p {}", "schtasks /create /ru me /rp {}",
    "snmpwalk -v3 -u me -A {} -X k", "gh secret set NAME --body '{}'", "aws ssm put-parameter --name /p --value '{}'",
    "az keyvault secret set --name n --value {}", "mosquitto_pub -u me -P {} -t x", "smbclient //h/s -U me%{}",
    "net use Z: \\\\srv\\share {} /user:me", "net user bob {} /add", "rabbitmqctl add_user bob {}",
    "htpasswd -bc .htpasswd admin {}", "poetry config http-basic.acme u {}", "bw unlock {}",
    "lftp -u me,{} sftp://h", "steamcmd +login bob {} +quit", "mysqladmin -u root password {}", "nmcli dev wifi connect home password {}", "sqlplus scott/{}@db", "jdbc:oracle:thin:scott/{}@//db:1521/xe", "root:{}@tcp(127.0.0.1:3306)/db", "ConvertTo-SecureString '{}' -AsPlainText", 'expect "assword:" {{ send "{}\\r" }}',
]  # fmt: skip
# More than the value itself goes: the salt as well, or both halves.
WIDER = [
    '{{"kty":"oct","k":"{0}{0}"}}', "admin:$apr1$eIfIPhts${}", "root:$6$ASZg6DLa${0}{0}:19000:0:99999:7:::", "$argon2id$v=19$m=65536,t=3,p=4$c2FsdHNhbHQ${}", "enable secret 5 {}",
]  # fmt: skip


@pytest.mark.parametrize("place", [*PLACES, *TYPED])
def test_a_place_gives_away_its_secret(place: str) -> None:
    """As text, as bytes that are no JSON, inside JSON and in a stream; what is around it stays."""
    text = place.format(MIXED)
    redacted, is_changed = REDACTOR.redact_text(text)
    assert is_changed
    assert MIXED not in redacted
    before, _, after = text.partition(MIXED)
    assert redacted.startswith(before.removesuffix("a:"))
    assert redacted.endswith(after)
    assert REDACTOR.redact_text(redacted) == (redacted, False)
    assert MIXED.encode() not in REDACTOR.redact_bytes(text.encode())[0]
    assert MIXED.encode() not in REDACTOR.redact_bytes(json.dumps([text]).encode())[0]
    stream = StreamRedactor(REDACTOR)
    assert redacted == "".join(map(stream.feed, text)) + stream.flush()


@pytest.mark.parametrize("place", PLACES)
def test_a_place_without_a_secret_is_untouched(place: str) -> None:
    """A word, a variable or a placeholder in the same place stays."""
    words = () if "curl" in place else ("disabled",)  # behind curl's flag anything is a password
    for value in (*words, "${NAME}", "<your-value-here>"):
        text = place.format(value)
        assert REDACTOR.redact_text(text) == (text, False)
        assert REDACTOR.redact_bytes(text.encode()) == (text.encode(), False)


@pytest.mark.parametrize("place", TYPED)
def test_an_argument_that_is_no_literal_is_untouched(place: str) -> None:
    """A variable or a placeholder behind such a command stays."""
    for value in ("${NAME}", "<your-value-here>"):
        text = place.format(value)
        assert REDACTOR.redact_text(text) == (text, False)


@pytest.mark.parametrize("place", WIDER)
def test_a_wider_place_gives_away_its_secret(place: str) -> None:
    """As text, inside JSON, in base64 and in a stream."""
    text = place.format(MIXED)
    data = json.dumps([text]).encode()
    stream = StreamRedactor(REDACTOR)
    encoded = b64encode(b"data: " + text.encode()).decode()
    assert MIXED not in REDACTOR.redact_text(text)[0]
    assert MIXED.encode() not in REDACTOR.redact_bytes(data)[0]
    assert MIXED not in "".join(map(stream.feed, text)) + stream.flush()
    assert "[redacted:base64]" in REDACTOR.redact_text(encoded)[0]
    assert not REDACTOR.redact_text(place.format("short"))[1]


@pytest.mark.parametrize("value", [LETTERS, LOWER], ids=["mixed", "lower"])
@pytest.mark.parametrize(
    "flag",
    [
        "--password {}",
        "--db-password '{}'",
        "-storepass {}",
        "--passphrase={}",
        "--from-literal=password={}",
        "--set auth.password={}",
    ],
)
def test_a_password_behind_a_flag_may_be_letters_alone(flag: str, value: str) -> None:
    """A long word behind such a flag is a password; a short one or one with hyphens is prose."""
    assert REDACTOR.redact_text("x " + flag.format(value)) == (
        "x " + flag.format("[redacted:password]"), True,
    )  # fmt: skip
    for word in ("required", "authentication", "of-the-service-account", "thePasswordVariable"):
        text = "x " + flag.format(word)
        assert REDACTOR.redact_text(text) == (text, False)


@pytest.mark.parametrize(
    "encode", [lambda text: quote(text, safe=""), quote_plus], ids=["url", "form"]
)
@pytest.mark.parametrize(
    "command",
    [
        "mysql -u root -p{} db",
        "curl -u admin:{} https://x",
        "redis-cli -h x -a {} ping",
        "sshpass -p {} ssh x",
        "tool go --password {}",
        "zip -P {} a b",
    ],
)
def test_an_encoded_command_gives_away_its_password(
    command: str, encode: Callable[[str], str]
) -> None:
    """The blank before a flag may be an escape as well, and an escaped blank ends the value."""
    value = MIXED[:16]
    redacted = REDACTOR.redact_text(f"https://x/?cmd={encode(command.format(value))}&a=b")[0]
    assert value not in redacted
    assert redacted.endswith(f"{encode(command.partition('{}')[2])}&a=b")


@pytest.mark.parametrize(
    "text", ["a%20-p%20b%20-pX1yz", "mysql%20is%20top-pX1yzabc", "mysql+-p%24PASSWORD"]
)
def test_an_encoded_text_without_such_a_command_stays(text: str) -> None:
    """Without the command, without a blank before the flag or with a variable it is no password."""
    assert REDACTOR.redact_text(text) == (text, False)


PUBLIC = [
    f"pk_live_{MIXED}",
    f'Stripe("pk_test_{MIXED}")',
    f"STRIPE_PUBLISHABLE_KEY=pk_live_{MIXED}",
    f"api_key: pk_live_{MIXED}",
    f"SENTRY_DSN=https://{HEX}@o123456.ingest.sentry.io/4501234567",
    f'dsn: "https://{HEX}@errors.example.com:9000/2"',
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "sec-websocket-key: x3JJHMbDL1EzLkh9GBhXDw==",
    '"Sec-WebSocket-Key": "x3JJHMbDL1EzLkh9GBhXDw=="',
]
SECRET = [
    f"sk_live_{MIXED}",
    f"rk_live_{MIXED}",
    f"https://{HEX}@example.com/a",
    f"https://{HEX}:{HEX[::-1]}@o123456.ingest.sentry.io/4501234567",
    "Sec-Api-Key: x3JJHMbDL1EzLkh9GBhXDw==",
]


@pytest.mark.parametrize("text", PUBLIC)
def test_what_is_public_stays(text: str) -> None:
    """Publishable keys, addresses that report errors and nonces are no secrets."""
    assert REDACTOR.redact_text(text) == (text, False)
    data = json.dumps({"text": text, "Sec-WebSocket-Key": "x3JJHMbDL1EzLkh9GBhXDw=="}).encode()
    assert REDACTOR.redact_bytes(data) == (data, False)
    stream = StreamRedactor(REDACTOR)
    assert text == "".join(map(stream.feed, text)) + stream.flush()


@pytest.mark.parametrize("text", SECRET)
def test_what_resembles_the_public_forms_does_not_stay(text: str) -> None:
    """The secret halves of the same services and headers are found."""
    assert REDACTOR.redact_text(text)[1]


@pytest.mark.parametrize("body", ["a" * 43, "ab" * 22, "A" * 60, "letters-and_words-only" * 2])
def test_the_daemons_own_tokens_go_whatever_they_look_like(body: str) -> None:
    """A token of the daemon is told by its prefix and length alone."""
    assert REDACTOR.redact_text(f"x pal_{body} y")[0] == "x [redacted:palyra] y"
    assert not REDACTOR.redact_text(f"x pal_{body[:30]} y opal_{body}")[1]


def test_bytes_that_begin_otherwise_are_read_as_text_and_as_json() -> None:
    """A log line with an object in it loses what either reading finds."""
    data = b'INFO DB_PASSWORD="hunter2x" {"password": "letmein", "note": "letmein"}'
    assert REDACTOR.redact_bytes(data)[0] == (
        b'INFO DB_PASSWORD="[redacted:password]" {"password": "[redacted:password]", "note": "letmein"}'
    )


def test_json_that_was_cut_off_is_still_read_as_json() -> None:
    """The end of a string or a word may be missing."""
    for end in (b'"tru', b"tru", b'"a\\', b"12", b""):
        data = b'{"password": "letmein", "x": ' + end
        assert REDACTOR.redact_bytes(data)[0] == data.replace(b"letmein", b"[redacted:password]")
