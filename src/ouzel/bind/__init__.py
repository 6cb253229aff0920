"""Binding resolves the names and types in a parsed query against event types: `bind(parse(text), text, catalog)`."""

from __future__ import annotations

from ouzel.bind.binder import bind
from ouzel.bind.expressions import parameter_names
from ouzel.bind.model import BoundQuery, Catalog
from ouzel.bind.schema import catalog_for
from ouzel.bind.script import bind_script, output_attributes

__all__ = ["BoundQuery", "Catalog", "bind", "bind_script", "catalog_for", "output_attributes", "parameter_names"]
