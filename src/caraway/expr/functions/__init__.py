"""Functions on single values that no engine has as expressions need them: formats of time, JSON and JSONPath.

They are plain Python over stored values, so that every engine, and its oracle, can call them or be compared with them.
"""
