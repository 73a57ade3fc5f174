"""Names of files that other programs read without being asked, and of places for secrets.

A program in a jail, or a tool of the daemon, could write a file that makes another program run
commands later, outside of any jail.  No approval can allow that: a person who approves one call
cannot foresee when such a file takes effect.  So a name belongs in this table only if both hold:

1. Something reads the file *unasked*: on entering, opening or looking at the folder (shells,
   prompts, version managers, editors, language servers, debuggers, file managers); in version
   control, at a commit or a push; or as an agent's instructions.  A setting for one person counts,
   because it takes effect in every other project, and so does a setting of a package manager that
   no manifest can hold and that decides where all packages come from and credentials go.
2. The content can make that program run a command, load code, fetch code or send credentials
   somewhere else, or choose the binary of a familiar name.

A file that only one tool reads, when a person runs that tool's own task, is part of the project's
source, although running it runs code: `Makefile`, `package.json`, `conftest.py`, `Dockerfile`,
`eslint.config.js`, `mypy.ini`, `flake.nix`, `pixi.toml`, `gradle.properties`, `.bazelrc`.  Coding
agents edit such files every day, and policy and approvals decide about each call.  An editor's
extension may run some of them when the folder is opened; it then runs the project's installed
plugins as well, and most of these settings can be written into `pyproject.toml` or `package.json`.

The class of a name, and nothing else, decides how the name is protected:

- *secrets*: tools neither read nor write the file, and a jail finds it empty.
- all other classes (*configuration*): tools may read and never write the file.  A jail finds an
  existing one read-only.
- A jail cannot create a missing one at the top of the workspace where the row has
  `needs_placeholder` (`tools.sandbox.protected_paths`).  Any other is quarantined when the program
  ends (`tools.sandbox.restored_paths`).

Names are paths below any folder, in POSIX form; `*` matches anything within one name.  They are
compared after NFKC and case folding.  Below the top of the workspace, an agent's instructions in
capitals (`AGENTS.md`) are compared in exact case: `docs/agents.md` is an ordinary page, and agents
ask for the name in capitals.  `source` is the page of the program's own documentation, or a manual
page.
"""

from typing import Literal, NamedTuple

Class = Literal[
    "version control", "commit hooks", "entering a folder", "shells and login", "editors", "agents",
    "continuous integration", "package managers", "builds", "interpreters and debuggers",
    "language servers", "containers", "desktop", "secrets",
]  # fmt: skip


class ProtectedNames(NamedTuple):
    """Names that one program reads."""

    kind: Class
    names: tuple[str, ...]
    read_by: str  # the program, and when
    source: str
    needs_placeholder: bool = False  # takes effect at once: a jail must not create it


def _row(
    kind: Class, names: str, read_by: str, source: str, *, needs_placeholder: bool = False
) -> ProtectedNames:
    return ProtectedNames(kind, tuple(names.split()), read_by, source, needs_placeholder)


# Each placeholder costs every start of a jail a quarter of a millisecond.  Only names get one that
# take effect as soon as a person enters, opens or looks at the folder: before the program ends.
# fmt: off
_VERSION_CONTROL = (
    _row("version control", ".git", "git, and every prompt and editor that asks it for a status", "https://git-scm.com/docs/gitrepository-layout", needs_placeholder=True),
    _row("version control", ".gitconfig .gitmodules .gitattributes .config/git", "git: filters, commands, where submodules come from", "https://git-scm.com/docs/git-config"),
    _row("version control", ".hg", "Mercurial, and prompts that ask it for a status", "https://www.mercurial-scm.org/doc/hgrc.5.html", needs_placeholder=True),
    _row("version control", ".hgrc .hgsub .hgsubstate", "Mercurial: hooks, aliases, subrepositories", "https://www.mercurial-scm.org/doc/hgrc.5.html"),
    _row("version control", ".svn .subversion", "Subversion: commands of tunnels, diff and merge", "https://svnbook.red-bean.com/en/1.7/svn.advanced.confarea.html"),
    _row("version control", ".jj .jjconfig.toml .config/jj", "Jujutsu: aliases, diff and signing programs", "https://jj-vcs.github.io/jj/latest/config/"),
    _row("version control", ".sl .arcconfig .arcrc", "Sapling, Arcanist: hooks, loaded libraries", "https://sapling-scm.com/docs/commands/config"),
    _row("version control", ".bzr .bazaar .brz .config/breezy", "Bazaar, Breezy: aliases, plugins, hooks", "https://www.breezy-vcs.org/doc/en/user-reference/configuration-help.html"),
    _row("version control", ".fossil .fslckout _FOSSIL_ .fossil-settings", "Fossil: commands for editing, comparing, hooks", "https://fossil-scm.org/home/doc/trunk/www/settings.wiki"),
    _row("version control", "_darcs .darcs .pijul", "Darcs, Pijul: defaults that run commands, hooks", "http://darcs.net/Using/Configuration"),
    _row("version control", ".cvsrc .p4config .p4enviro .p4aliases", "CVS, Perforce: server, programs, aliases", "https://help.perforce.com/helix-core/server-apps/cmdref/current/Content/CmdRef/P4CONFIG.html"),
    _row("version control", ".repo", "repo: manifests, hooks", "https://source.android.com/docs/setup/reference/repo"),
    _row("version control", ".dvc/config .dvc/config.local .lfsconfig", "DVC, Git LFS: where data comes from", "https://dvc.org/doc/user-guide/project-structure/configuration"),
    _row("version control", ".gitreview", "git-review, at a push: the host", "https://docs.opendev.org/opendev/git-review/latest/installation.html"),
    _row("version control", ".reviewboardrc", "RBTools, when a change is posted: Python code, the server", "https://www.reviewboard.org/docs/rbtools/latest/rbt/configuration/"),
    _row("version control", ".lazygit.yml .config/lazygit", "lazygit: commands, pagers", "https://github.com/jesseduffield/lazygit/blob/master/docs/Config.md"),
    _row("version control", ".tigrc .config/tig .config/gitui", "tig, gitui: commands of keys", "https://jonas.github.io/tig/doc/tigrc.5.html"),
    _row("version control", ".gh-dash.yml .gh-dash.yaml .config/gh-dash", "gh-dash: commands of keys, pager", "https://www.gh-dash.dev/configuration/"),
    _row("version control", "_MTN .monotone", "monotone: hooks in Lua", "https://www.monotone.ca/docs/Hooks.html"),
)
_COMMIT_HOOKS = (
    _row("commit hooks", ".pre-commit-config.yaml .pre-commit-config.yml .pre-commit-hooks.yaml prek.toml", "pre-commit, at each commit", "https://pre-commit.com/"),
    _row("commit hooks", ".husky .huskyrc .huskyrc.* .config/husky", "husky, at each commit and push", "https://typicode.github.io/husky/"),
    _row("commit hooks", "lefthook.yml lefthook.yaml lefthook.toml lefthook.json lefthook-local.* .lefthook.* .lefthook .lefthook-local .lefthook-local.* .config/lefthook.*", "lefthook, at each commit and push", "https://lefthook.dev/configuration/"),
    _row("commit hooks", ".githooks .git-hooks", "git, where core.hooksPath names the folder", "https://git-scm.com/docs/githooks"),
    _row("commit hooks", ".lintstagedrc .lintstagedrc.* lint-staged.config.*", "lint-staged, at each commit", "https://github.com/lint-staged/lint-staged#configuration"),
    _row("commit hooks", ".commitlintrc .commitlintrc.* commitlint.config.*", "commitlint, at each commit", "https://commitlint.js.org/reference/configuration.html"),
    _row("commit hooks", ".simple-git-hooks.* simple-git-hooks.*", "simple-git-hooks, at install and commit", "https://github.com/toplenboren/simple-git-hooks#configuration"),
    _row("commit hooks", ".overcommit.yml .git-hooks.yml", "overcommit, at each commit", "https://github.com/sds/overcommit#configuration"),
    _row("commit hooks", ".czrc .cz.json .cz.toml .cz.yaml .cz-config.js .cz-config.cjs .yorkie", "commitizen, at each commit", "https://commitizen-tools.github.io/commitizen/config/configuration_file/"),
    _row("commit hooks", "hk.pkl .hk.pkl .talismanrc .gitleaks.toml .captainhook captainhook.json grumphp.yml .grumphp.yml .ghooks .cargo-husky", "runners and guards of git's hooks, at each commit", "https://hk.jdx.dev/configuration.html"),
)
_ENTERING = (
    _row("entering a folder", ".direnv", "direnv, when the folder is entered", "https://direnv.net/man/direnv.1.html"),
    _row("entering a folder", ".direnvrc .config/direnv", "direnv, before each .envrc", "https://direnv.net/man/direnv-stdlib.1.html"),
    _row("entering a folder", "mise.toml mise.*.toml .mise.toml .mise.*.toml .mise mise-tasks .mise-tasks .config/mise .config/mise.toml .config/mise.*.toml .rtx.toml .rtx.*.toml .rtx .config/rtx", "mise: hooks, environment, tools", "https://mise.jdx.dev/configuration.html"),
    _row("entering a folder", ".tool-versions .asdfrc .default-npm-packages .default-gems .default-python-packages .default-go-packages .default-cargo-crates", "asdf, mise: which binary a name runs", "https://asdf-vm.com/manage/configuration.html"),
    _row("entering a folder", ".nvmrc .node-version .n-node-version .config/nvm", "nvm, fnm, nodenv: which node runs", "https://github.com/nvm-sh/nvm#nvmrc"),
    _row("entering a folder", ".python-version .python-versions", "pyenv, uv: which Python runs; uv takes a path", "https://docs.astral.sh/uv/concepts/python-versions/"),
    _row("entering a folder", ".ruby-version .ruby-gemset .rbenv-version .rbenv-gemsets .rvmrc .versions.conf", "rbenv, rvm, chruby; .rvmrc is a shell script", "https://rvm.io/workflow/projects"),
    _row("entering a folder", ".sdkmanrc .java-version .jenv-version .jabbarc", "SDKMAN, jenv, jabba: which Java runs", "https://sdkman.io/usage#env-command"),
    _row("entering a folder", ".go-version .gvmrc .terraform-version .opentofu-version .tfswitchrc .tgswitchrc", "goenv, tfenv: which binary runs", "https://github.com/tfutils/tfenv#terraform-version-file"),
    _row("entering a folder", ".php-version .phpbrewrc .perl-version .lua-version .swift-version .crystal-version .dart-version .fvmrc .ocaml-version .zig-version .deno-version .bun-version .bvmrc .dvmrc .exenv-version .erlang-version .elixir-version .kotlin-version .scala-version .R-version .julia-version .dotnet-version .cmake-version .packer-version .helm-version .kubectl-version .pulumi-version", "version managers: which binary a name runs", "https://mise.jdx.dev/configuration.html#idiomatic-version-files"),
    _row("entering a folder", "rust-toolchain rust-toolchain.toml", "rustup: which toolchain runs; it may be a path", "https://rust-lang.github.io/rustup/overrides.html"),
    _row("entering a folder", ".devenv .devenv.*", "devenv, when the folder is entered", "https://devenv.sh/automatic-shell-activation/"),
    _row("entering a folder", "nix.conf .nixpkgs .config/nix .config/nixpkgs .config/home-manager .nix-defexpr .nix-channels lorri.nix .lorri", "nix: substituters, hooks", "https://nix.dev/manual/nix/latest/command-ref/conf-file"),
    _row("entering a folder", ".devbox", "devbox: an init hook, through direnv too", "https://www.jetify.com/docs/devbox/configuration/"),
    _row("entering a folder", ".pixi/config.toml .config/pixi", "pixi: channels and mirrors, in each project", "https://pixi.sh/latest/reference/pixi_manifest/"),
    _row("entering a folder", ".flox .hermit .proto .prototools .config/proto hermit.hcl aqua.yaml .aqua.yaml aqua-policy.yaml pkgx.yaml .pkgx.yaml .tea.yaml tea.yaml", "flox, hermit, proto, aqua, pkgx: tools and hooks", "https://moonrepo.dev/docs/proto/config"),
    _row("entering a folder", ".autoenv .autoenv.zsh .autoenv_leave.zsh .autoenv.sh .autoenvrc .autoswitch_venv .shadowenv.d .smartcd .ondirrc .localrc .dirrc .cdrc", "autoenv and its like, when the folder is entered", "https://github.com/hyperupcall/autoenv#readme"),
    _row("entering a folder", ".condarc condarc .mambarc mambarc", "conda, mamba: channels, what activation runs", "https://docs.conda.io/projects/conda/en/stable/user-guide/configuration/use-condarc.html"),
)
_SHELLS = (
    _row("shells and login", ".bashrc .bash_profile .bash_login .bash_logout .bash_aliases .bash* .blerc", "bash", "https://www.gnu.org/software/bash/manual/html_node/Bash-Startup-Files.html"),
    _row("shells and login", ".zshrc .zshenv .zprofile .zlogin .zlogout .zsh* .oh-my-zsh .oh-my-bash .zinit .zplug .zimrc .zpreztorc .zgenom .antigenrc .p10k.zsh", "zsh", "https://zsh.sourceforge.io/Doc/Release/Files.html"),
    _row("shells and login", ".profile .kshrc .ksh* .mkshrc .yashrc .yash_profile .shrc .shinit .ashrc .dashrc .loginrc", "sh, ksh and their like", "https://pubs.opengroup.org/onlinepubs/9799919799/utilities/sh.html"),
    _row("shells and login", ".cshrc .tcshrc .login .logout .cshdirs", "csh, tcsh", "https://man.archlinux.org/man/tcsh.1"),
    _row("shells and login", ".config/fish .fishrc .config/nushell .config/xonsh .xonshrc .config/elvish .elvish .rcrc .config/powershell .config/starship.toml .starship.toml .config/oh-my-posh .config/bash .config/zsh", "fish, nushell, xonsh, elvish, PowerShell, prompts", "https://fishshell.com/docs/current/language.html#configuration-files"),
    _row("shells and login", ".inputrc .config/readline .editrc .lesskey .lessfilter .lessrc .config/lesskey", "readline, libedit, less", "https://man7.org/linux/man-pages/man3/readline.3.html"),
    _row("shells and login", ".tmux.conf .tmux.conf.local .tmux .config/tmux .tmuxinator.yml .tmuxinator.yaml .tmuxinator .config/tmuxinator .tmuxp.yaml .tmuxp.yml .tmuxp.json .tmuxp .screenrc .byobu .config/zellij .zellij .config/wezterm .wezterm.lua .config/kitty .config/alacritty .alacritty.* .config/ghostty .teamocil", "terminals and multiplexers", "https://man.openbsd.org/tmux.1"),
    _row("shells and login", ".xinitrc .xsession .xsessionrc .xprofile .xserverrc .xinputrc .Xresources .Xdefaults .xbindkeysrc .pam_environment .login_conf", "X sessions and logins", "https://www.x.org/releases/current/doc/man/man1/xinit.1.xhtml"),
    _row("shells and login", ".forward .procmailrc .qmail .qmail-* .vacationrc .mailcap .mailrc .muttrc .mutt .config/mutt .config/neomutt", "mail, when one comes in or is opened", "https://man.archlinux.org/man/aliases.5"),
    _row("shells and login", ".curlrc .wgetrc .config/curlrc .config/wget .lftprc .lftp", "curl, wget: proxies, output files", "https://curl.se/docs/manpage.html"),
    _row("shells and login", ".crontab .rhosts .shosts .local/bin .local/sbin", "cron, logins, and PATH", "https://man7.org/linux/man-pages/man5/crontab.5.html"),
    _row("shells and login", ".cargo/bin .cargo/env .rustup .nvm .pyenv .rbenv .rvm .nodenv .goenv .jenv .asdf .sdkman .volta .bun/bin .deno/bin .krew .ghcup .juliaup .dotnet/tools", "logins, which load scripts of version managers and put their programs into PATH", "https://rust-lang.github.io/rustup/installation/index.html"),
    _row("shells and login", ".profile.d", "Heroku, at the start of every shell of the app", "https://devcenter.heroku.com/articles/dynos"),
    _row("shells and login", ".selected_editor", "sensible-editor, which loads it as a shell script", "https://manpages.debian.org/stable/sensible-utils/sensible-editor.1.en.html"),
    _row("shells and login", ".config/foot .config/rio .config/contour .config/termite .config/terminator .config/tilix .config/konsole .local/share/konsole .hyper.js .config/Hyper .warp .config/waveterm .config/tabby", "terminals: the program that they start", "https://man.archlinux.org/man/foot.ini.5"),
    _row("shells and login", ".mailfilter .sieve .dovecot.sieve .imapfilter .config/imapfilter .config/aerc .notmuch-config .config/notmuch .config/himalaya .config/alot .config/meli", "mail, when one comes in or is opened: filters, hooks, commands", "https://notmuchmail.org/doc/latest/man5/notmuch-hooks.html"),
    _row("shells and login", ".config/thefuck .thefuck .ripgreprc .config/ripgrep .config/bat .ackrc .config/broot", "tools of a command line: rules, pagers, filters of one person", "https://github.com/BurntSushi/ripgrep/blob/master/GUIDE.md"),
    _row("shells and login", ".taskrc .task/hooks .timewarrior .config/timewarrior .todo.cfg .todo/config .config/calcurse/hooks", "Taskwarrior, todo.txt and their like, at each command: hooks", "https://taskwarrior.org/docs/hooks/"),
    _row("shells and login", ".config/yt-dlp .yt-dlp .config/youtube-dl .config/gallery-dl .aria2 .config/aria2 .rtorrent.rc .config/rtorrent", "downloads: commands when one ends, of one person", "https://aria2.github.io/manual/en/html/aria2c.html"),
    _row("shells and login", ".config/chezmoi .yadm .config/yadm .k5users", "chezmoi, yadm: hooks, scripts; logins of Kerberos", "https://www.chezmoi.io/reference/configuration-file/hooks/"),
    _row("shells and login", ".w3m .elinks .lynxrc .config/tridactyl .tridactylrc .pentadactylrc .vimperatorrc .ircrc .epicrc .slrnrc .config/newsboat .newsboat", "browsers of a terminal, news and chat: commands, scripts", "https://newsboat.org/releases/latest/docs/newsboat.html"),
    _row("shells and login", ".config/mpv .mpv .mplayer", "players, when a file is opened: scripts in Lua and JavaScript", "https://mpv.io/manual/stable/"),
)
_EDITORS = (
    _row("editors", ".vscode", "VS Code: tasks, interpreters, settings", "https://code.visualstudio.com/docs/debugtest/tasks", needs_placeholder=True),
    _row("editors", ".vscode-test .vscode-insiders .vscode-server .vscode-oss .code-workspace *.code-workspace .config/Code .config/VSCodium", "VS Code and its like", "https://code.visualstudio.com/docs/editing/workspaces/workspaces"),
    _row("editors", ".idea", "JetBrains IDEs: startup tasks, run configurations", "https://www.jetbrains.com/help/idea/project-security.html", needs_placeholder=True),
    _row("editors", ".run *.run.xml *.ipr *.iws *.iml .fleet .ideavimrc .config/JetBrains .intellijPlatform", "JetBrains IDEs", "https://www.jetbrains.com/help/idea/run-debug-configuration.html"),
    _row("editors", ".devcontainer", "editors that open the folder in a container", "https://containers.dev/implementors/spec/", needs_placeholder=True),
    _row("editors", ".devcontainer.json devcontainer.json .gitpod.yml .gitpod.yaml .gitpod.Dockerfile .gitpod .ona .replit replit.nix .stackblitzrc .codesandbox .idx .devfile.yaml devfile.yaml .devfile.yml devfile.yml", "hosted editors, when the folder is opened", "https://containers.dev/implementors/spec/"),
    _row("editors", ".zed", "Zed: tasks, language servers", "https://zed.dev/docs/configuring-zed", needs_placeholder=True),
    _row("editors", ".config/zed .helix .config/helix .lapce .config/lapce .nova .brackets.json .bracketsrc .lite_project.lua .lite-xl", "Helix, Lapce, Nova, Atom: language servers", "https://docs.helix-editor.com/configuration.html"),
    _row("editors", ".vimrc .gvimrc .exrc .nexrc .nvimrc .nvim.lua .nvim .vim .config/nvim .config/vim .config/coc .lvimrc .local.vimrc .vimrc.local .nvimrc.lua .vimlocal .vimproject .project.vim .lnvim.lua .neoconf.json .nlsp-settings .projections.json .vimspector.json .nvim-dap.lua .lazy.lua .overseer .ycm_extra_conf.py .tern-project .tern-config", "vim, neovim and plugins, when the folder is opened", "https://neovim.io/doc/user/options.html#'exrc'"),
    _row("editors", ".dir-locals.el .dir-locals-2.el .dir-locals.eld .emacs .emacs.el .emacs.d .emacs.* .config/emacs .spacemacs .spacemacs.d .doom.d .config/doom .projectile .dumbjump .dir-config.el .editorconfig.el", "Emacs, when a file of the folder is opened", "https://www.gnu.org/software/emacs/manual/html_node/emacs/Directory-Variables.html"),
    _row("editors", ".editorconfig", "most editors", "https://spec.editorconfig.org/"),
    _row("editors", "*.sublime-project *.sublime-workspace *.sublime-build *.sublime-settings *.sublime-commands *.sublime-keymap .config/sublime-text", "Sublime Text: builds, language servers", "https://www.sublimetext.com/docs/projects.html"),
    _row("editors", ".kakrc kakrc.local .kak .config/kak .micro .config/micro .nanorc .config/nano .jedrc .joerc .mcedit .config/mc .mc .config/geany .geany *.geany .kateproject .kateproject.build .kateconfig .kdev4 *.kdev4 *.komodoproject .komodotools .textadept .tm_properties *.tmproj", "other editors: builds, tools, settings", "https://docs.kde.org/stable5/en/kate/kate/kate-application-plugin-projects.html"),
    _row("editors", ".vs *.vcxproj.user *.csproj.user *.vbproj.user *.fsproj.user *.suo launch.vs.json tasks.vs.json CppProperties.json CMakeUserPresets.json *.pro.user *.qbs.user CMakeLists.txt.user .qtcreator", "Visual Studio, Qt Creator, CMake: one person's commands", "https://learn.microsoft.com/visualstudio/ide/customize-build-and-debug-tasks-in-visual-studio"),
    _row("editors", ".project .classpath .factorypath .cproject .pydevproject .buildpath .settings .externalToolBuilders nbproject nbactions.xml nb-configuration.xml", "Eclipse, NetBeans: builders that run at each change", "https://help.eclipse.org/latest/topic/org.eclipse.platform.doc.isv/reference/misc/project_description_file.html"),
    _row("editors", ".lvim .spacevim .SpaceVim.d .config/lvim .astronvim .lsp.json .coc-settings.json coc-settings.json .efmrc .efm-langserver .config/efm-langserver .dap.json .languageclient.json .ensime .merlin .solargraph.yml .rubocop-lsp .config/marksman .marksman.toml .sourcekit-lsp", "language servers that editors start", "https://scalameta.org/metals/docs/"),
    _row("editors", ".jupytext.py", "Jupyter with jupytext, when a notebook of the folder is opened: Python code", "https://jupytext.readthedocs.io/en/latest/config.html"),
    _row("editors", ".theia", "Theia, when the folder is opened: tasks, launches, settings", "https://theia-ide.org/docs/user_getting_started/"),
    _row("editors", "_vimrc _gvimrc _exrc _viminfo .vsvimrc _vsvimrc .vrapperrc .xvimrc", "Vim and its imitations, at a start", "https://vimhelp.org/starting.txt.html"),
    _row("editors", ".obsidian logseq/custom.js .logseq", "Obsidian, Logseq, when the folder is opened as a vault or a graph: plugins, scripts", "https://docs.obsidian.md/Plugins/Getting+started/Build+a+plugin"),
)
_AGENTS = (
    _row("agents", "PALYRA.md AGENTS.md .palyra", "agents: taken for the owner's instructions", "https://agents.md/", needs_placeholder=True),
    _row("agents", "MEMORY.md USER.md", "Palyra and other agents: taken for facts that their owner has confirmed", "https://docs.openclaw.ai/concepts/memory"),
    _row("agents", "AGENT.md AGENTS.*.md .agents .agent .rules .ai-rules .llmrules", "agents: taken for the owner's instructions", "https://agents.md/"),
    _row("agents", "CLAUDE.md .claude .mcp.json", "Claude Code: instructions, hooks, servers", "https://code.claude.com/docs/en/settings", needs_placeholder=True),
    _row("agents", "CLAUDE.local.md .claude.json .clauderules .claude-plugin .claude.* .config/claude .mcp .mcp.* .mcprc .lmstudio", "Claude Code and others: servers they start", "https://modelcontextprotocol.io/docs/develop/connect-local-servers"),
    _row("agents", "GEMINI.md .gemini .codex", "Gemini CLI, Codex: instructions, settings", "https://github.com/google-gemini/gemini-cli/blob/main/docs/get-started/configuration.md", needs_placeholder=True),
    _row("agents", "GEMINI.local.md .geminirules .qwen QWEN.md .iflow IFLOW.md .codexrc CODEX.md .grok GROK.md .kimi KIMI.md .deepseek", "agents like these", "https://developers.openai.com/codex/config-basic"),
    _row("agents", ".cursor .cursorrules", "Cursor: rules, hooks, servers", "https://cursor.com/docs/context/rules", needs_placeholder=True),
    _row("agents", ".cursor-plugin .config/Cursor", "Cursor", "https://cursor.com/docs/context/ignore-files"),
    _row("agents", ".windsurf", "Windsurf: rules, workflows", "https://docs.windsurf.com/windsurf/cascade/memories", needs_placeholder=True),
    _row("agents", ".windsurfrules .codeium .windsurf.*", "Windsurf: rules", "https://docs.windsurf.com/windsurf/cascade/memories"),
    _row("agents", ".clinerules .cline .clinerules-* .roo .roorules .roorules-* .roomodes .kilocode .kilocoderules .kilocodemodes .kilo .kilorules", "Cline, Roo Code, Kilo Code", "https://docs.cline.bot/features/cline-rules"),
    _row("agents", ".continue .continuerc.json .continuerules .kiro .amazonq .aws-q .q-developer .augment .augment-guidelines .augmentrules .trae .junie .aiassistant .factory .droid", "Continue, Kiro, Amazon Q, Augment, Trae, Junie", "https://docs.continue.dev/customize/deep-dives/rules"),
    _row("agents", ".aider.conf.yml .aider.conf.yaml .aider.model.settings.yml .aider.model.metadata.json .aider*", "aider: test and lint commands", "https://aider.chat/docs/config/aider_conf.html"),
    _row("agents", ".opencode opencode.json opencode.jsonc .opencode.json .opencode.jsonc OPENCODE.md .crush crush.json .crush.json CRUSH.md .config/opencode .config/crush", "opencode, crush: servers, plugins, permissions", "https://opencode.ai/docs/config/"),
    _row("agents", ".github/copilot-instructions.md .github/instructions .github/prompts .github/chatmodes .github/agents .github/hooks .github/skills .github/copilot .github/copilot-setup-steps.yml .github/mcp.json .github/plugin .copilot copilot-instructions.md", "GitHub Copilot: instructions, agents, hooks", "https://docs.github.com/en/copilot/how-tos/configure-custom-instructions/add-repository-instructions"),
    _row("agents", ".goosehints .goose .config/goose .goosehints.local .openhands .openhands_instructions .amp .ampcode .config/amp .devin .jules JULES.md WARP.md .zencoder .tabnine .cody .sourcegraph .voidrules .pearai .pearairules .firebender firebender.json .rovodev .rovodev.yml .bolt replit.md .gptme gptme.toml .mentat .mentatconfig.json .plandex .serena .conductor .conductor.json .refact .codebuddy CODEBUDDY.md .qoder .antigravity .openclaw .clawd", "other agents: instructions, servers", "https://block.github.io/goose/docs/guides/context-engineering/using-goosehints"),
    _row("agents", ".vibe .ruler .pochi .pi .lingma", "Mistral Vibe, Ruler, Pochi, Pi, Lingma: instructions, servers, extensions", "https://docs.mistral.ai/mistral-vibe/introduction/configuration"),
    _row("agents", ".coderabbit.yaml .coderabbit.yml .pr_agent.toml greptile.json .greptile .sweep.yaml sweep.yaml .sourcery.yaml .bito.yaml .ellipsis.yaml ellipsis.yaml .korbit-config.yaml .cubic.yaml cubic.yaml .qodo .codiumai.toml .bugbot BUGBOT.md", "review services, at each push", "https://docs.coderabbit.ai/getting-started/yaml-configuration"),
    _row("agents", ".codebuff codebuff.json .config/manicode .blackboxrules .blackboxcli .nanocoder .stakpak .auggie .superclaude .forge forge.yaml", "Codebuff, Blackbox, Forge and others: instructions, servers, hooks", "https://www.codebuff.com/docs"),
    _row("agents", ".config/aichat .aichat .config/io.datasette.llm .config/shell_gpt .sgptrc .config/fabric", "aichat, llm, shell_gpt: instructions, functions, servers", "https://github.com/sigoden/aichat/wiki/Configuration-Guide"),
    _row("agents", "claude_desktop_config.json mcp_config.json .ai/mcp .rulesync rulesync.jsonc rulesync.local.jsonc .bmad-core .specify/memory", "agents: servers that they start, instructions", "https://modelcontextprotocol.io/docs/develop/connect-local-servers"),
)
_CI = (
    _row("continuous integration", ".github/workflows .github/actions .github/dependabot.yml .github/dependabot.yaml .github/settings.yml .github/renovate.json .github/renovate.json5 .github/CODEOWNERS .github/codeql .github/copilot-setup-steps.yaml", "GitHub, at each push", "https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-syntax"),
    _row("continuous integration", ".gitlab-ci.yml .gitlab-ci.yaml *.gitlab-ci.yml *.gitlab-ci.yaml .gitlab-ci .gitlab-ci.d .gitlab/ci .gitlab/agents .gitlab/duo .gitlab/CODEOWNERS .gitlab/.gitlab-ci.yml .gitlab-webide.yml CODEOWNERS", "GitLab, at each push", "https://docs.gitlab.com/ci/yaml/"),
    _row("continuous integration", ".circleci circle.yml .travis.yml .travis.yaml .travis Jenkinsfile Jenkinsfile.* *.jenkinsfile .jenkins jenkins.yml .jenkins.yml", "CircleCI, Travis CI, Jenkins, at each push", "https://www.jenkins.io/doc/book/pipeline/jenkinsfile/"),
    _row("continuous integration", "azure-pipelines.yml azure-pipelines.yaml azure-pipelines-*.yml azure-pipelines.*.yml .azure-pipelines .azure-pipelines.yml .azuredevops .azure-devops .vsts-ci.yml vsts-ci.yml .vsts-*.yml bitbucket-pipelines.yml bitbucket-pipelines.yaml", "Azure Pipelines, Bitbucket, at each push", "https://learn.microsoft.com/azure/devops/pipelines/yaml-schema/"),
    _row("continuous integration", ".drone.yml .drone.yaml .drone.star .drone.jsonnet .drone .woodpecker .woodpecker.yml .woodpecker.yaml .buildkite buildkite.yml buildkite.yaml .buildkite.yml .harness", "Drone, Woodpecker, Buildkite, at each push", "https://woodpecker-ci.org/docs/usage/intro"),
    _row("continuous integration", ".forgejo/workflows .forgejo/actions .gitea/workflows .gitea/actions .onedev-buildspec.yml .gogs .builds .build.yml .build.yaml .builds.yml", "Forgejo, Gitea, OneDev, SourceHut, at each push", "https://forgejo.org/docs/latest/user/actions/reference/"),
    _row("continuous integration", "appveyor.yml .appveyor.yml appveyor.yaml .appveyor .cirrus.yml .cirrus.yaml .cirrus.star .semaphore semaphore.yml .teamcity .teamcity.yml wercker.yml shippable.yml codeship-steps.yml codeship-services.yml codefresh.yml .codefresh codemagic.yaml .bitrise .bitrise.yml bitrise.yml screwdriver.yaml .screwdriver .tekton .concourse .zuul.yaml .zuul.d zuul.yaml zuul.d .dagger .vela.yml .vela.yaml .prow.yaml .ci-operator.yaml .taskcluster.yml .packit.yaml .packit.yml packit.yaml .copr .spacelift ci_scripts .ci.yaml .ci.yml", "other services, at each push", "https://cirrus-ci.org/guide/writing-tasks/"),
    _row("continuous integration", "cloudbuild.yaml cloudbuild.yml cloudbuild.json buildspec.yml buildspec.yaml amplify.yml", "builds of clouds, at each push", "https://docs.aws.amazon.com/codebuild/latest/userguide/build-spec-ref.html"),
    _row("continuous integration", "atlantis.yaml", "Atlantis, at each pull request: commands of workflows", "https://www.runatlantis.io/docs/repo-level-atlantis-yaml.html"),
    _row("continuous integration", "*.gocd.yaml *.gocd.json", "GoCD, at each push", "https://docs.gocd.org/current/advanced_usage/pipelines_as_code.html"),
    _row("continuous integration", ".readthedocs.yml .readthedocs.yaml readthedocs.yml .renovaterc .renovaterc.json .renovaterc.json5 renovate.json renovate.json5 .mergify.yml .mergify .bors.toml bors.toml .kodiak.toml .deepsource.toml .dependabot .releaserc .releaserc.* release.config.* .release-it.* .goreleaser.yml .goreleaser.yaml .autorc .trunk", "bots and releases, at each push", "https://docs.readthedocs.com/platform/stable/config-file/v2.html"),
)
_PACKAGES = (
    _row("package managers", ".npmrc .yarnrc .yarnrc.yml .yarnrc.yaml .yarn/plugins .yarn/releases .yarn/sdks .pnpmfile.cjs .pnpmfile.mjs pnpmfile.js pnpmfile.cjs .pnpmrc .pnp.loader.mjs .config/pnpm .config/yarn", "npm, yarn, pnpm: registries, plugins, scripts", "https://docs.npmjs.com/cli/configuring-npm/npmrc"),
    _row("package managers", "bunfig.toml .bunfig.toml .bowerrc .jspmrc .nrmrc .cnpmrc .tnpmrc .corepack.env", "bun and others: preloaded code, registries", "https://bun.sh/docs/runtime/bunfig"),
    _row("package managers", "pip.conf pip.ini .pip .config/pip .pydistutils.cfg pydistutils.cfg .buildout easy_install.cfg .config/uv .pdm.toml .pdm-python .config/pypoetry .config/pdm .config/hatch .config/rye", "pip, uv, pdm, poetry: indexes, interpreters", "https://pip.pypa.io/en/stable/topics/configuration/"),
    _row("package managers", ".bundle .gemrc .gem/gemrc .config/gem .config/bundler", "bundler, gem: sources, paths, build flags", "https://bundler.io/man/bundle-config.1.html"),
    _row("package managers", ".cargo/config .cargo/config.toml", "cargo: wrappers, runners, linkers, registries", "https://doc.rust-lang.org/cargo/reference/config.html"),
    _row("package managers", "nuget.config .config/NuGet", "NuGet, dotnet: sources, tools", "https://learn.microsoft.com/nuget/reference/nuget-config-file"),
    _row("package managers", ".composer/config.json .config/composer .pearrc", "composer, PEAR: repositories, plugins", "https://getcomposer.org/doc/06-config.md"),
    _row("package managers", ".mvn .mavenrc .sbtopts .sbtrc .sbtconfig .jvmopts .mill-opts .mill-jvm-opts .mill-version .mill-jvm-version .config/coursier .leinrc", "Maven, Ivy, sbt, Mill, Leiningen: JVM options, extensions", "https://maven.apache.org/configure.html"),
    _row("package managers", ".config/luarocks .config/nimble .conanrc .config/swiftpm .config/guix .config/go .pacman.conf .makepkg.conf .config/pacman .config/paru .config/yay", "package managers: sources, hooks, flags", "https://go.dev/ref/mod"),
    _row("package managers", ".dput.cf .dput.d .dupload.conf .devscripts .gbp.conf .pbuilderrc .sbuildrc .quiltrc .rpmmacros", "uploads and builds of Debian and RPM packages: commands, servers, of one person", "https://manpages.debian.org/stable/dput/dput.cf.5.en.html"),
    _row("package managers", ".ivy2/ivysettings.xml .m2/extensions.xml .m2/toolchains.xml .sbt/repositories .sbt/1.0 .sbt/2 .lein/profiles.clj .clojure/deps.edn .config/clojure .boot/profile.boot", "Maven, Ivy, sbt, Leiningen, Clojure, Boot: plugins, repositories of one person", "https://maven.apache.org/configure.html"),
    _row("package managers", ".cabal/config .config/cabal .stack/config.yaml .config/stack .opam .opamrc .cpan/CPAN .dub/settings.json .conan/remotes.json .conan2/remotes.json .conan2/profiles .conan2/extensions .spack .config/rebar3 .npm-init.js", "cabal, Stack, opam, CPAN, dub, Conan, Spack, rebar3: repositories, programs, plugins of one person", "https://cabal.readthedocs.io/en/stable/config.html"),
)
_BUILDS = (
    _row("builds", ".gradle/gradle.properties .gradle/init.gradle .gradle/init.gradle.kts .gradle/init.d .gradle/config.properties", "gradle, in each project: JVM options, init scripts", "https://docs.gradle.org/current/userguide/build_environment.html"),
    _row("builds", ".bazelproject .blazerc .buckconfig.d .buckrc .pantsrc .pants.rc .please", "Bazel, Buck, Pants, Please: options of one person", "https://bazel.build/run/bazelrc"),
    _row("builds", ".ant .antrc .ant.properties .rakerc .rake .config/rake .ninjarc .config/meson .sconsrc .config/ccache .config/sccache .config/cmake .cmake .config/just .config/task .latexmkrc .config/latexmk", "builds: options, wrappers, scripts of one person", "https://bazel.build/run/bazelrc"),
    _row("builds", ".actrc .config/act", "act: images and options of one person", "https://nektosact.com/usage/index.html"),
    _row("builds", ".terraformrc terraform.rc .tofurc .terraform.d .pulumi .ansible.cfg .vagrant.d .packer.d .tflint.d .samrc", "Terraform, Ansible and others: plugins, defaults", "https://docs.ansible.com/ansible/latest/reference_appendices/config.html"),
    _row("builds", "user-config.jam site-config.jam .packerconfig .chef", "B2, Packer, Chef: code and plugins of one person", "https://www.bfgroup.xyz/b2/manual/release/index.html"),
)
_RUNTIMES = (
    _row("interpreters and debuggers", ".gdbinit .gdbearlyinit .gdbinit.d .config/gdb .lldbinit .lldbinit-* .lldb .cgdb .config/cgdb .gef.rc .pwndbg .radare2rc .radare2rc.d .config/radare2 .rizinrc .config/rizin .dlv .config/dlv .windbg .jdbrc .perldb .ltrace.conf .ltracerc .valgrindrc .perfconfig .bpftracerc .uftrace.conf .drgnrc *-gdb.py *-gdb.gdb *-gdb.scm", "debuggers and tracers, when started in the folder", "https://sourceware.org/gdb/current/onlinedocs/gdb.html/Startup.html"),
    _row("interpreters and debuggers", "sitecustomize.py usercustomize.py .pythonrc .pythonrc.py .pythonstartup .pythonstartup.py .pystartup .pdbrc .pdbrc.py .ipdb .ipdbrc .pudb .config/pudb .ipython ipython_config.py ipython_kernel_config.py ipython_startup.py .jupyter jupyter_*_config.py jupyter_config.py jupyter_*_config.json .config/ipython .config/bpython .config/ptpython .ptpython .bpython .pyrc .pyenvrc", "Python, pdb, IPython, Jupyter, when started in the folder", "https://docs.python.org/3/library/site.html"),
    _row("interpreters and debuggers", ".irbrc irbrc .pryrc .byebugrc .rdbgrc .rdbgrc.rb .config/irb .config/pry .railsrc .proverc .replyrc .psysh.php .config/psysh .phpdbginit .config/raku", "Ruby, Perl, PHP, when started in the folder", "https://docs.ruby-lang.org/en/master/IRB.html"),
    _row("interpreters and debuggers", ".ts-noderc .esmrc .esmrc.* .denorc .config/deno", "node, when started in the folder", "https://nodejs.org/api/cli.html#--experimental-default-config-file"),
    _row("interpreters and debuggers", ".iex.exs .erlang .ghci .ocamlinit .utoprc .config/utop .Rprofile .Renviron .Rprofile.site renv/activate.R .radian_profile .config/R .octaverc .matlab7rc.sh .juliarc.jl .sagerc .gprc .sbclrc .eclrc .clisprc .clisprc.lisp .ccl-init.lisp .abclrc .cmucl-init.lisp .clinit.cl .racketrc .csirc .chickenrc .swiplrc .config/swi-prolog .yaprc .prologrc .scala_repl .groovy .bshrc .tclshrc .wishrc .gnuplotrc .jqrc .config/gnuplot .duckdbrc", "interpreters, when started in the folder", "https://stat.ethz.ch/R-manual/R-devel/library/base/html/Startup.html"),
    _row("interpreters and debuggers", ".nrepl.edn .nrepl", "nREPL, when an editor starts it in the folder: middleware, address", "https://nrepl.org/nrepl/usage/server.html"),
    _row("interpreters and debuggers", ".psqlrc .sqliterc .mysqlrc .myclirc .pgclirc .config/pgcli .config/mycli .litecli .config/litecli .usqlrc .mongorc.js .mongoshrc.js .redisclirc .cqlshrc .hiverc .clickhouse-client .influxrc .sqlplusrc", "database clients, when started", "https://www.postgresql.org/docs/current/app-psql.html"),
    _row("interpreters and debuggers", ".ghc/ghci.conf .guile .julia/config .re.pl .Mathematica/Autoload .Mathematica/Kernel .maxima .gaprc .gap/gaprc .magmarc .mapleinit .Macaulay2 .asy .matlab", "interpreters, when started: code of one person or of the folder", "https://www.gnu.org/software/guile/manual/html_node/Init-File.html"),
    _row("interpreters and debuggers", "matplotlibrc .config/matplotlib", "each Python program in the folder that draws: the module of its backend", "https://matplotlib.org/stable/users/explain/customizing.html"),
)
_LANGUAGE_SERVERS = (
    _row("language servers", ".ruby-lsp", "Ruby LSP, when the folder is opened: its Gemfile is code", "https://shopify.github.io/ruby-lsp/composed-bundle.html"),
    _row("language servers", ".ropeproject", "rope, through a language server, when the folder is opened: its config.py is code", "https://rope.readthedocs.io/en/latest/configuration.html"),
    _row("language servers", ".clangd .config/clangd .ccls .ctags .ctags.d", "clangd and its like, when a file is opened: compilers, plugins, flags", "https://clangd.llvm.org/config"),
    _row("language servers", "rust-analyzer.toml .rust-analyzer.toml rust-project.json .zls.json zls.json omnisharp.json .omnisharp .als.json", "language servers, when the folder is opened: commands that replace the usual ones", "https://rust-analyzer.github.io/book/configuration.html"),
    _row("language servers", ".bsp .bloop", "Metals and JetBrains IDEs, when the folder is opened: the command of a build server", "https://build-server-protocol.github.io/docs/overview/server-discovery"),
    _row("language servers", "vetur.config.js", "Vetur, when the folder is opened: JavaScript code", "https://vuejs.github.io/vetur/reference/"),
    _row("language servers", "hie.yaml .lsp/config.edn .config/clojure-lsp .phpactor.json .phpactor.yml .phpactor.yaml .luarc.json .luarc.jsonc", "Haskell, Clojure, PHP and Lua servers, when the folder is opened: commands, plugins", "https://haskell-language-server.readthedocs.io/en/latest/configuration.html"),
)
_CONTAINERS = (
    _row("containers", ".docker/cli-plugins .docker/daemon.json .config/podman .config/nerdctl .buildkitd.toml .config/distrobox .config/toolbox.conf", "docker and others, in each command: plugins, options of one person", "https://docs.docker.com/reference/cli/docker/"),
    _row("containers", ".config/helm .k9s .config/k9s", "tools of clusters: plugins, hooks", "https://helm.sh/docs/topics/plugins/"),
    _row("containers", ".config/containers .lima .config/lima .colima", "podman, Lima, Colima, in each command: hooks, programs, registries", "https://github.com/containers/common/blob/main/docs/containers.conf.5.md"),
)
_DESKTOP = (
    _row("desktop", ".directory autorun.inf .autorun desktop.ini", "file managers, when the folder is opened", "https://specifications.freedesktop.org/desktop-entry-spec/latest/"),
    _row("desktop", ".config/autostart .config/systemd .config/environment.d .config/plasma-workspace .config/autostart-scripts .config/upstart .config/sway .config/i3 .i3 .config/hypr .config/bspwm .config/openbox .config/awesome .config/qtile .config/xmonad .xmonad .config/river .config/niri .config/labwc .config/mimeapps.list .config/nautilus .config/pcmanfm .config/ranger .config/lf .config/yazi .config/vifm .vifm .config/sxhkd .config/polybar .config/waybar .config/rofi .config/dunst .fluxbox .fvwm .fvwm2rc .icewm .twmrc .mwmrc .dtprofile .gnomerc .openbox .awesome", "sessions of a desktop, and what they start", "https://specifications.freedesktop.org/autostart-spec/latest/"),
    _row("desktop", ".local/share/applications .local/share/systemd .local/share/dbus-1 .local/share/nautilus .local/share/kservices5 .local/share/gnome-shell .local/share/plasma .local/share/kwin .local/share/bash-completion .local/share/zsh .local/share/fish .LaunchAgents", "services and entries of a desktop", "https://www.freedesktop.org/software/systemd/man/latest/systemd.unit.html"),
    _row("desktop", ".local/share/thumbnailers .local/share/mime", "file managers, when the folder is opened: commands for its pictures", "https://specifications.freedesktop.org/thumbnail-spec/latest/"),
    _row("desktop", ".asoundrc .pulse .config/pulse .config/pipewire .config/wireplumber", "every program that plays sound: loaded libraries, commands", "https://www.alsa-project.org/wiki/Asoundrc"),
    _row("desktop", ".config/Thunar .local/share/nemo .local/share/caja .local/share/file-manager .config/xfce4 .config/lxsession .config/lxpanel .config/espanso", "file managers and sessions: actions, started programs", "https://docs.xfce.org/xfce/thunar/custom-actions"),
    _row("desktop", ".hammerspoon .skhdrc .config/skhd .yabairc .config/yabai .aerospace.toml .config/aerospace .phoenix.js .slate .slate.js .finicky.js .config/karabiner .config/sketchybar .config/borders Library/LaunchAgents", "macOS: agents of a login, window managers, keys", "https://www.hammerspoon.org/docs/"),
)
_SECRETS = (
    _row("secrets", ".envrc", "direnv, when the folder is entered; holds keys", "https://direnv.net/man/direnv.1.html", needs_placeholder=True),
    _row("secrets", ".env .env.* .env-* .env_* .env~ .envs .envrc.* .envfile", "docker compose, autoenv, frameworks; holds keys", "https://docs.docker.com/compose/how-tos/environment-variables/variable-interpolation/"),
    _row("secrets", ".rbenv-vars", "rbenv, with each program that it starts in the folder; holds keys", "https://github.com/rbenv/rbenv-vars#readme"),
    _row("secrets", ".kamal/secrets*", "Kamal: keys, and commands that fetch them", "https://kamal-deploy.org/docs/configuration/environment-variables/"),
    _row("secrets", ".streamlit/secrets.toml", "Streamlit: keys", "https://docs.streamlit.io/develop/api-reference/connections/secrets.toml"),
    _row("secrets", ".config/github-copilot", "GitHub Copilot: tokens, instructions", "https://docs.github.com/en/copilot/how-tos/configure-custom-instructions"),
    _row("secrets", ".ssh .gnupg .gpg .putty", "ssh, gpg: keys, and commands of hosts", "https://man.openbsd.org/ssh_config.5"),
    _row("secrets", ".netrc .git-credentials .gitcookies .config/git/credentials .authinfo .authinfo.gpg .fetchmailrc .msmtprc .mbsyncrc .offlineimaprc .getmail .esmtprc .smbcredentials .davfs2 .ftpconfig .ncftp", "curl, git, mail: passwords", "https://www.gnu.org/software/inetutils/manual/html_node/The-_002enetrc-file.html"),
    _row("secrets", ".pypirc .cargo/credentials .cargo/credentials.toml .gem/credentials .local/share/gem/credentials .docker/config.json .dockercfg .config/containers/auth.json .composer/auth.json .config/composer/auth.json .m2/settings.xml .m2/settings-security.xml .sbt/.credentials .ivy2/.credentials .hex/hex.config .config/twine .nuget/NuGet/NuGet.Config .lein/credentials.clj.gpg .config/configstore .pub-cache/credentials.json .config/dart/pub-credentials.json .config/hub .config/uv/credentials .clojars .jfrog .config/jsr", "uploads of packages: tokens", "https://packaging.python.org/en/latest/specifications/pypirc/"),
    _row("secrets", ".aws .azure .kube .config/gcloud .config/gh .config/glab-cli .config/doctl .config/rclone .config/sops .config/op .config/age .config/stripe .config/heroku .config/hcloud .config/linode-cli .config/scw .config/exoscale .config/flyctl .fly .oci .aliyun .bluemix .ibmcloud .vault-token .terraform.d/credentials.tfrc.json .boto .s3cfg .mc/config.json .gsutil .snowsql .databrickscfg .clasprc.json .cloudflared .wrangler/config .config/.wrangler .netlify/config.json .config/netlify .vercel/auth.json .config/vercel .local/share/com.vercel.cli .railway .config/railway .ngrok2 .config/ngrok .doctl .hcloud .openstack .config/openstack .pulumi/credentials.json .config/argocd .argocd .minikube .helm/repository .rclone.conf .p4tickets .config/sentry .sentryclirc .kaggle .huggingface .config/wandb .config/openai", "clouds: keys and tokens", "https://docs.aws.amazon.com/cli/latest/userguide/cli-configure-files.html"),
    _row("secrets", ".pgpass .pg_service.conf .my.cnf .mylogin.cnf .odbc.ini .sqldeveloper .dbeaver4", "databases: passwords", "https://www.postgresql.org/docs/current/libpq-pgpass.html"),
    _row("secrets", ".password-store .gpg-id .local/share/keyrings .local/share/kwalletd .gnome2/keyrings .gnome-keyring .keepass .config/keepassxc .config/Bitwarden .config/1Password .config/Signal .electrum .bitcoin .ethereum .monero .config/solana .foundry/keystores .Xauthority .ICEauthority .k5login .k5identity .vnc .config/remmina .purple .irssi .weechat .config/hexchat", "stores of passwords and wallets", "https://www.passwordstore.org/"),
    _row("secrets", ".mozilla .thunderbird .librewolf .waterfox .floorp .config/google-chrome .config/google-chrome* .config/chromium .config/chromium* .config/BraveSoftware .config/BraveSoftware* .config/microsoft-edge .config/microsoft-edge* .config/vivaldi .config/vivaldi* .config/opera .config/opera* .config/epiphany .local/share/epiphany .config/qutebrowser", "browsers: sessions and passwords", "https://support.mozilla.org/kb/profiles-where-firefox-stores-user-data"),
    _row("secrets", ".config/weechat .local/share/weechat .cvspass", "chat, mail and CVS: passwords", "https://weechat.org/files/doc/weechat/stable/weechat_user.en.html"),
)
# fmt: on

# After a dot, hyphen or underscore, these endings make an example without secrets of a `.env` file.
EXAMPLE_ENDINGS = ("example", "sample", "template", "dist")

TABLE: tuple[ProtectedNames, ...] = (
    *_VERSION_CONTROL, *_COMMIT_HOOKS, *_ENTERING, *_SHELLS, *_EDITORS, *_AGENTS, *_CI, *_PACKAGES,
    *_BUILDS, *_RUNTIMES, *_LANGUAGE_SERVERS, *_CONTAINERS, *_DESKTOP, *_SECRETS,
)  # fmt: skip
