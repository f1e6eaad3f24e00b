"""The compiled loops: the only modules that import numba.

A kernel writes into arrays that Python made, and returns nothing or plain numbers. An array that it
made itself numba would wrap up by calls of Python's functions, without a look at whether these
failed, as they do where Ctrl-C came while the kernel ran: a crash, or a `SystemError`.

Imported where used, never at the top of another module: importing numba takes half a second.
"""
