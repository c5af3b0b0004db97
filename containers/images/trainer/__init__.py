"""The trainer inside containers: one training job, stopped and resumed at will.

It imports only PyTorch, NumPy and the standard library, and nothing outside this folder imports it:
it communicates with the scheduler through files in a folder (docs/images.md).
"""
