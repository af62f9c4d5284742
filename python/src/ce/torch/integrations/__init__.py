"""Functions and modules of other projects with their own signatures, run by ``ce``.

Each is a separate module that does not import the project it replaces: ``ce.torch.integrations.liger``,
``flash_attn``, ``megatron``, ``quack``, ``torchtitan``, ``transformer_engine``, ``transformers``, ``trl``.
"""
