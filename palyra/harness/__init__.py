"""Harness that runs many cases against a daemon; its results survive a crash of either process.

The harness is an ordinary client of the daemon.

- `cases` reads and validates the input file.
- `case_runner` executes one case, from its message to its result.
- `driver` executes all cases concurrently.
- `connections` opens several connections and limits the request rate of each.
- `outcome` evaluates an answer against its expectations.
- `results` stores tapes and results in the output directory, with `jsonl` and `summary`.
- `target` connects to a running daemon or to one that `local_daemon` starts and restarts.
- `bench` joins these to the command `palyra bench run`.
- `replays` and `compare` read the stored results afterwards.
"""
