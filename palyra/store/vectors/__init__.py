"""The memory index: facts, word scores and vectors of all items, built from the journal.

`index` is what others use.  It is a projection: it can be deleted at any time.  Its modules import
numpy and FAISS, so they are imported when the memory is first used.
"""
