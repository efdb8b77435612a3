"""Pools made from what people have, step by step: linear heads on frozen image models, as in the paper."""
