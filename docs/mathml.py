"""Sphinx extension: formulas as MathML, which browsers show without scripts or fonts from elsewhere."""

from docutils.nodes import SkipNode
from latex2mathml.converter import convert


def visit_inline(self, node):
    """Write a formula within a line."""
    self.body.append(f'<span class="math">{convert(node.astext())}</span>')
    raise SkipNode


def visit_block(self, node):
    """Write a formula on lines of its own."""
    self.body.append(f'<div class="math">{convert(node.astext().strip(), display="block")}</div>')
    raise SkipNode


def setup(app):
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
