"""Programs behind walls: what is run, with which limits, and that nothing of it stays.

`Command` says what to run and what it may see; `Sandbox.open(command)` runs it:

    async with sandbox.open(Command(argv=("/bin/ls",))) as child:
        text = await child.stdout.receive_some()
        ending = await child.wait()

The program is named by its path (`argv[0]` holds a slash: nothing is searched), as the command sees
it.  A folder that is no system folder is brought along as a read-only `Bind`; small files as
`files`, sealed copies laid over what is there.

On leaving the block, however it is left, every process of the command is dead: children,
grandchildren, daemons of its own.  `child.enforcement` says which walls stood round it.

A command has no network.  With `Command.network` set to an `Egress` it sees one address, a port of
its own loopback; whoever connects there is accepted by the daemon, in the hands of that `Egress`.
The listening socket is made inside the command's network namespace and handed out of it, so it
exists nowhere else: no forwarder runs in the jail, and no socket lies in a file system.
"""
