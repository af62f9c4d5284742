"""Functions and modules of other projects with their own signatures, through ``ce``.

Each is a module of its own that imports nothing of the project it stands for: ``ce.torch.integrations.liger``,
``flash_attn``, ``megatron``, ``quack``, ``torchtitan``, ``transformer_engine``, ``transformers``, ``trl``.
"""
