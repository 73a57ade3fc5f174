"""The harness: many cases through a daemon, with results that survive everybody's crash.

A client like any other.  `cases` reads the input, `outcome` judges an answer, `directory` keeps
what is written, `lanes` paces requests over several connections, `perform` takes one case from its
message to its result, `drive` runs them side by side, `own_daemon` keeps a daemon of its own.
"""
