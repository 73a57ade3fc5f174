"""Places of secrets: subscripts, hash rockets, HCL blocks, flags, literals of programs."""

import json
from base64 import b64encode
from collections.abc import Callable
from random import Random
from string import ascii_letters, ascii_lowercase, digits
from urllib.parse import quote, quote_plus

from palyra.core.redaction.redactor import Redactor, StreamRedactor
from tests.rows import every_row

REDACTOR = Redactor([])


def drawn(alphabet: str, size: int) -> str:
    """A value drawn with a fixed seed, so that this file contains no literal secret."""
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
    "the password for the printer is {}", "the wifi password at work is {}", "my password is now {}", "the password has been reset to {}",
    "I changed my password to {}", "password for the staging db: {}", "Das Passwort wurde auf {} geändert",
    "Das Passwort für das WLAN ist {}", "mein neues Passwort ist jetzt {}", "Das Passwort vom Drucker lautet {}",
    "Passwort: {}", "Kennwort: {}", "mot de passe : {}", "contraseña: {}", "La clave es {}", "senha: {}", "La password è {}",
    "пароль: {}", "密码\uff1a{}", "パスワード: {}", "heslo: {}", "hasło: {}", "wachtwoord: {}", "password\uff1a{}",
    "Incorrect API key provided: {}", "401 invalid token '{}'", "pass_phrase={}", "psk={}",
    # arguments of programs
    "auth=('admin', '{}')", "HTTPBasicAuth('admin', '{}')", 'req.SetBasicAuth("admin", "{}")',
    "jwt.sign(payload, '{}')", 'DriverManager.getConnection(url, "root", "{}");', "new mysqli('h', 'root', '{}', 'db');",
    'WiFi.begin("home", "{}");',
    # arguments of commands
    "AUTH default {}",
    "account a\nuser me\npassword {}", "ngrok authtoken {}", "fly secrets set NAME={}",
    "config:set NAME={}", "SSHPASS={} sshpass -e ssh h", "keytool -storepass {} -keypass changeit", "atlas --privateKey {}",
    "cypress run --record --key {}", "buildkite-agent start --token {}", "tool --name start --next-token-secret {}",
    "echo 'root:{}' | chpasswd", "echo '{}' | wrangler secret put K", '$env:API_TOKEN = "{}"',
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


@every_row("place", [*PLACES, *TYPED])
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


@every_row("place", PLACES)
def test_a_place_without_a_secret_is_untouched(place: str) -> None:
    """A word, a variable or a placeholder in the same place stays."""
    words = () if "curl" in place else ("disabled",)  # behind curl's flag anything is a password
    for value in (*words, "${NAME}", "<your-value-here>"):
        text = place.format(value)
        assert REDACTOR.redact_text(text) == (text, False)
        assert REDACTOR.redact_bytes(text.encode()) == (text.encode(), False)


@every_row("place", TYPED)
def test_an_argument_that_is_no_literal_is_untouched(place: str) -> None:
    """A variable or a placeholder behind such a command stays."""
    for value in ("${NAME}", "<your-value-here>"):
        text = place.format(value)
        assert REDACTOR.redact_text(text) == (text, False)


@every_row("place", WIDER)
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


@every_row("value", [LETTERS, LOWER])
@every_row(
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


@every_row("encode", [lambda text: quote(text, safe=""), quote_plus])
@every_row(
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


@every_row("text", ["a%20-p%20b%20-pX1yz", "mysql%20is%20top-pX1yzabc", "mysql+-p%24PASSWORD"])
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


INNOCENT = [
    "password policy: at least 12 characters, 1 digit and 1 symbol",
    "The password must be changed every 90 days.",
    "Your password is too short (minimum is 8 characters).",
    "Enter password for user admin:",
    "password = getpass.getpass()",
    'password = input("Password: ")',
    "password: str",
    "password: str = Field(min_length=8)",
    "password: Optional[str] = None",
    "token: Token = next(tokens)",
    "secret: bytes = os.urandom(32)",
    "api_key: str | None = None",
    'api_key: SecretStr = SecretStr("")',
    "def login(username: str, password: str) -> bool:",
    "const password = req.body.password;",
    "const token = await getToken({ req, secret: process.env.NEXTAUTH_SECRET });",
    "let token = tokens[index1];",
    'names[api_key] = "Xq8zR2vB7nLw4TkP9sYd"',
    "names[password] = Xq8zR2vB7nLw4TkP9sYd",
    "token = self.tokenizer.next_token()",
    "token := lexer.NextToken()",
    "if token.type == TokenType.IDENT2:",
    'String password = request.getParameter("password");',
    "private final PasswordEncoder passwordEncoder = new BCryptPasswordEncoder();",
    'password: "{{ vault_db_password }}"',
    "password: ${{ secrets.DB_PASSWORD }}",
    "password: !vault |",
    "password: !Ref DbPassword1",
    "password: !GetAtt Secret1.Value",
    "PASSWORD=$(cat /run/secrets/db_password_1)",
    "export TOKEN=`gcloud auth print-access-token`",
    'API_KEY="${API_KEY:?must be set}"',
    "API_KEY=your-api-key-here",
    "token=<YOUR_TOKEN_1>",
    "password=********",
    "secret: xxxxxxxxxxxxxxxx1",
    "--password <password>",
    "--password-file /run/secrets/db1",
    "--password-stdin",
    "--token-file=/var/run/token2",
    "--api-key-env OPENAI_API_KEY",
    'curl -H "Authorization: Bearer $TOKEN1"',
    'curl -u "$USER:$PASS"',
    "curl -u user:password",
    "mysql -u root -p db1",
    "mysql -p$PASSWORD1",
    "docker login -u user --password-stdin registry.example.com",
    "ssh -p 2222 host1",
    "mkdir -p build/out1",
    "tar -xzf a1.tar.gz -C /opt",
    "docker run -p 8080:80 nginx1",
    'git config user.password ""',
    "UPDATE users SET password = $1 WHERE id = $2",
    "SELECT password FROM users WHERE password IS NOT NULL",
    "CREATE USER app WITH PASSWORD :'pw1'",
    "CREATE USER app IDENTIFIED BY '${PW1}'",
    '<input type="password" name="password" placeholder="Password1">',
    '<label for="password">Password</label>',
    "<password></password>",
    '<input type="password" autocomplete="new-password" id="password1">',
    ".password-field { color: #1a2b3c; }",
    ".token.keyword { color: #07a4f3 }",
    'input[type="password"] { border: 1px }',
    "@media (min-width: 768px) { .btn-2xl { padding: 1rem } }",
    "max_tokens: 4096",
    '"total_tokens": 15234, "prompt_tokens": 1200',
    'next_page_token: "CAUQAA1234567890abc"',
    "continuation token",
    "pagination token is opaque to the client",
    'tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")',
    "eos_token_id=128009",
    'key = f"{prefix}:{user_id1}"',
    'cache_key = "users:v2:list:1a2b3c4d"',
    "primary_key=True",
    "for key, value in items.items():",
    "keyboard shortcut Ctrl+Shift+P2",
    "key: value",
    '"key": "Shift+F10"',
    "<kbd>Ctrl</kbd>",
    'partition_key="2024-01-01T00"',
    "author_id: 12345678901234567890",
    'uuid = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"',
    "session started 2024-01-01T00:00:00Z",
    "session_id: ses_018f3c1e-5b7a-7bbb-8ccc-0123456789ab",
    'version = "1.2.3-beta.4+build5"',
    "file:///home/user/project1/src/main2.rs",
    "/usr/lib/python3.11/site-packages/cryptography/hazmat/primitives/ciphers",
    "C:\\Users\\me1\\AppData\\Local\\Temp2",
    "node_modules/@babel/plugin-syntax-class-properties2/lib",
    "s3://bucket-1/path/to/key2/file3.parquet",
    "https://docs.example.com/reset-password",
    "https://docs.example.com/reference/token/authentication-overview2",
    "https://example.com/invite/how-to-invite-people",
    "https://example.com/key/concepts-of-encryption",
    "/api/v1/secrets/list-all-secrets2",
    "GET /reset/styles-v2.css HTTP/1.1",
    "ssh://deploy@host1.example.com:22/x",
    "https://user@example.com/x",
    "git@github.com:org/repo1.git",
    "ssh://gitlab-runner-service1@host",
    "redis://localhost:6379/0",
    "postgres://localhost/db1",
    "postgres://user:password@localhost/db",
    "mongodb://mongo1:27017,mongo2:27017/?replicaSet=rs0",
    "nothing to see: the secret of good prose is rewriting",
    "The secret to success is 10000 hours.",
    "This is a secret message from user42.",
    "the token was issued in 2024 and is valid for 3600s",
    "token is expired at 2024-01-01T10:00:00",
    "The API key was rotated on 2024-05-06.",
    "API key is required",
    "the access token is stored in ~/.config/app1/token.json",
    "the password is stored as sha256(salt+password)",
    "The password for user1 is stored elsewhere.",
    'password is "required"',
    "password was set to null",
    'password "must not be empty"',
    'field "password" is required',
    "unexpected token '}' at position 15",
    'Unexpected token "export1"',
    'SyntaxError: Unexpected token \'<\', "<!DOCTYPE "... is not valid JSON',
    "invalid token: expected string2",
    "error: token expired",
    'Error: secret "db-credentials-v2" not found',
    "secret/db-credentials created",
    'secret "my-secret-name1" deleted',
    "kubectl get secret db-credentials-prod1 -o yaml",
    "kubectl create secret generic my-secret1 --from-file=./config1.json",
    "kubectl create secret generic a --from-literal=mode=production",
    "aws secretsmanager get-secret-value --secret-id prod/db1",
    "vault kv get secret/app1",
    "gh secret list",
    'gh secret set NAME --body "$VALUE1"',
    "net user",
    "net use Z: \\\\server1\\share2",
    "net use",
    "set -x PATH /usr/local/bin1",
    "set -e -o pipefail",
    "set(CMAKE_CXX_STANDARD 17)",
    'set(TOKEN_FILE "${CMAKE_SOURCE_DIR}/token1")',
    "#define TOKEN_MAX 128",
    "#define PASSWORD_MIN_LENGTH 8",
    "#define KEY_F12 0x58",
    "const MAX_TOKENS: usize = 4096;",
    'const SECRET_NAME: &str = "db-credentials";',
    'let secret_path: &str = "/run/secrets/db1";',
    "Dim password As String",
    "private password: string;",
    "password?: string;",
    "readonly token: string | undefined = undefined;",
    "password: z.string().min(8).max(100)",
    "password: Joi.string().required()",
    "password: hashedPassword,",
    "password <- getPassword()",
    "token <- ch1",
    "token -> user mapping",
    "password || throw new Error1()",
    "const t = token || defaultToken;",
    'const t = token ?? "none"',
    "pass || exit 1",
    'password or "default"',
    'auth=("user", "pass")',
    'auth=HTTPBasicAuth("user", "password")',
    "auth=(username, password1)",
    'requests.get(url, auth=("user", "pass"))',
    'mysqli_connect("localhost", "my_user", "my_password", "my_db")',
    'jwt.sign(payload, "secret")',
    "jwt.sign({ id: 1 }, process.env.SECRET2)",
    'DriverManager.getConnection(url, "root", "password")',
    "new PDO($dsn, $user, $pass1)",
    'WiFi.begin("ssid", "password");',
    "ConvertTo-SecureString $plain1 -AsPlainText -Force",
    'ConvertTo-SecureString "<password>" -AsPlainText',
    "sqlplus / as sysdba",
    "sqlplus user/password@db",
    "jdbc:oracle:thin:@//db:1521/xe",
    "root:password@tcp(localhost:3306)/db",
    "requirepass foobared",
    "# requirepass foobared",
    "AUTH default password",
    'echo "hello1 world" | sudo tee /etc/x',
    "echo $PASSWORD1 | docker login -u u --password-stdin",
    "lftp -u user, sftp://h",
    "bw unlock --passwordenv BW_PASSWORD",
    "mnemonic: a short pattern of letters",
    "Mnemonic devices help one to remember long lists of things in order easily",
    '{"d":"2024-01-01","k":"some-key-name","p":1}',
    '{"d": "a long sentence of description which goes on and on"}',
    '{"kty":"RSA","e":"AQAB","n":"abc"}',
    'response="ok" mac="aa:bb:cc:dd:ee:ff"',
    'Digest auth uses nonce and response="..."',
    "$1$2$3 and \\$6\\$ are shell arguments",
    "hash starts with $2b$12$ for bcrypt",
    "regex: ^\\$2[aby]\\$\\d{2}\\$",
    "K10 is a mountain; sk_live_ is a prefix",
    "the SK telecom SK1234",
    "tk_ widgets: tk_button_pressed_event_handler_name",
    "ak_python_client_library_name_long",
    'ser.write(b"hello1")',
    "ser.readline().decode()",
    "Beamer b_something",
    "logs-01.loggly.com/inputs/",
    "Sec-WebSocket-Protocol: graphql-transport-ws, graphql-ws",
    "Sec-WebSocket-Protocol: soap, wamp.2.json",
    "X-Request-Id: 7f3b1c2d-4e5f-4a6b-8c7d-9e0f1a2b3c4d",
    'If-None-Match: W/"686897696a7c876b7e"',
    "Set-Cookie: lang=en-US; Path=/",
    "Cookie: consent=true",
    "Authorization: Bearer <access_token>",
    'WWW-Authenticate: Bearer realm="example", error="invalid_token"',
    "clave primaria: id_cliente2",
    "La palabra clave es importante",
    "parola chiave: funzione2",
    "Das Passwort muss 8 Zeichen haben.",
    "пароль должен быть не короче 8 символов",
    "密码错误 123",
    "senha incorreta",
    "wachtwoord vergeten",
    "password\n\nMust be strong1",
    "api_key:\n  type: string\n  description: The key2",
    "password:\n  type: string\n  minLength: 8",
    "token:\n  - name: x1\n    value: y2",
    "secrets:\n  - source: db1\n    target: /run/db1",
    "env:\n  - name: LOG_LEVEL\n    value: debug1",
    'name: password1\n    value: ""',
    "- name: API_TOKEN\n  valueFrom:\n    secretKeyRef:\n      name: app-secrets1",
    "password: |\n  Use at least 8 characters.",
    "token: >\n  The token2 of the request",
    "<key>CFBundleIdentifier</key><string>com.example.App1</string>",
    "<key>Token</key>\n<integer>5</integer>",
    '<xs:element name="password" type="xs:string"/>',
    '<property name="password" value="${db.password1}"/>',
    '<property name="token" type="string" value="default"/>',
    '<meta name="token" content="required">',
    'Content-Disposition: form-data; name="password"\r\n\r\n\r\n--b',
    "pip install python-jose[cryptography]==3.3.0",
    "cryptography==42.0.5 --hash=sha256:",
    '"cookie": "^0.6.0", "jsonwebtoken": "^9.0.2"',
    '"@types/passport-jwt": "^4.0.1"',
    "passport-local@1.0.0",
    "bcrypt.hash(password, saltRounds1)",
    "argon2.verify(hash1, password2)",
    'assert verify_password("pw", hashed1)',
    "user.check_password(raw_password2)",
    "PasswordResetTokenGenerator2",
    "TestTokenRefresh_ExpiredV2",
    "token_budget=8000 tokens_used=1234",
    "secretsmanager:GetSecretValue2",
    "AWS::SecretsManager::Secret",
    "ParameterKey=KeyName,ParameterValue=my-key-pair1",
    "MasterUserPassword: !Sub '${Pw1}'",
    "psk: wpa2-personal",
    "PSK modulation 8PSK 16QAM",
    "pwd && ls -la1",
    "pwd: /home/user1/work",
    "pass 3 of 12, fail 0",
    "passing tests: 120",
    "compass heading 270",
    "bypass=enabled2",
    'git commit -m "Rotate token 2024-05"',
    "Bearer of news 2024",
    "Basic auth is disabled2",
    "the password for the printer is on the fridge",
    "the password is now longer than before",
    "we changed the password to comply with ISO27001",
    "password for the staging db is in the vault",
    "Das Passwort wurde auf Wunsch geändert",
    "Das Passwort für das WLAN ist lang",
    "salt: 3 g pepper 2 g",
    "auth: oauth2",
    'auth = "github-oauth2"',
    "credentials: include",
    "credentials: same-origin",
    "credential_id=cred1",
    "key=lambda x1: x1.name2",
]  # fmt: skip


@every_row("text", INNOCENT)
def test_what_talks_about_secrets_stays(text: str) -> None:
    """Prose, programs, commands and pages that name a secret and hold none, in every reading."""
    assert REDACTOR.redact_text(text) == (text, False)
    data = json.dumps([text]).encode()
    assert REDACTOR.redact_bytes(data) == (data, False)
    stream = StreamRedactor(REDACTOR)
    assert text == "".join(map(stream.feed, text)) + stream.flush()


@every_row("text", PUBLIC)
def test_public_keys_are_not_redacted(text: str) -> None:
    """Publishable keys, error-report addresses and nonces are not secrets."""
    assert REDACTOR.redact_text(text) == (text, False)
    data = json.dumps({"text": text, "Sec-WebSocket-Key": "x3JJHMbDL1EzLkh9GBhXDw=="}).encode()
    assert REDACTOR.redact_bytes(data) == (data, False)
    stream = StreamRedactor(REDACTOR)
    assert text == "".join(map(stream.feed, text)) + stream.flush()


@every_row("text", SECRET)
def test_secret_counterparts_of_public_keys_are_redacted(text: str) -> None:
    """The secret halves of the same services and headers are found."""
    assert REDACTOR.redact_text(text)[1]


@every_row("body", ["a" * 43, "ab" * 22, "A" * 60, "letters-and_words-only" * 2])
def test_the_daemons_own_tokens_are_always_redacted(body: str) -> None:
    """A token of the daemon is recognised by its prefix and length alone."""
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
