"""The compiled loops: the only modules that import numba. Arrays in, arrays out.

Imported where used, never at the top of another module: importing numba takes half a second.
"""
