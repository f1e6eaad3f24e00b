"""The compiled loops: the only modules that import numba.

A kernel writes into arrays that Python created, and returns nothing or plain numbers. If it
returned an array, numba would wrap it with functions of Python and ignore their errors. They fail
if Ctrl-C was pressed while the kernel ran: the result would be a crash, or a `SystemError`.

Other modules import kernels inside the functions that use them: numba takes half a second.
"""
