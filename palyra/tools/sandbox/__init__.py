"""The sandbox: runs a program isolated, within limits, and removes all of it afterwards.

`Command` describes the program and the files it may see; `Sandbox.open(command)` runs it:

    async with sandbox.open(Command(argv=("/bin/ls",))) as child:
        text = await child.stdout.receive_some()
        ending = await child.wait()

`argv[0]` is a path as the command sees it and contains a slash: PATH is not searched.  A folder
outside the system's is passed as a read-only `Bind`; small files as `files`, sealed copies mounted
over existing paths.

After the block, whether left normally or not, every process of the command is dead: children,
grandchildren, daemons of its own.  `child.enforcement` names the isolation layers that held.

A command has no network.  With `Command.network` set to a `CommandEgress` it sees one address, a
port of its own loopback, and the daemon accepts the connections there.  The listening socket is
created inside the command's network namespace and sent to the daemon, so it exists nowhere else: no
forwarder runs in the jail, and no socket lies in a file system.

Levels: A is bubblewrap's namespaces with a system call filter, Landlock and limits; B, in
`shared_host`, replaces the namespaces where a kernel has none.
"""
