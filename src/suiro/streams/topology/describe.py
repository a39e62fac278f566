"""Describes a topology as text, in the format of Kafka Streams (`TopologyDescription`), and as a Mermaid diagram.

The processors are those that Kafka Streams makes of a topology: some of our operators are several of them, whose
further names are the node's aliases. Their order is Kafka Streams' too: within a sub-topology what has more below it
comes first, then by name. Stores are sorted by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from suiro.errors import UsageError
from suiro.streams.dsl.named import moves_with_its_place
from suiro.streams.topology import nodes
from suiro.streams.topology.topology import SubTopology, Topology, stores_of


@dataclass(eq=False, slots=True)
class _Processor:
    """One line of the description and its arrows."""

    kind: str  # "Source", "Processor", "Sink"
    name: str
    about: str  # what stands in brackets behind the name
    before: list[_Processor] = field(default_factory=list)
    after: list[_Processor] = field(default_factory=list)
    weight: int = 0

    def weigh(self) -> int:
        """Returns the number of processors from here down, counted once for each path."""
        if not self.weight:
            self.weight = 1 + sum(processor.weigh() for processor in self.after)
        return self.weight


@dataclass(slots=True)
class _Part:
    """A node as processors: those where records come in, by port, and those where they leave."""

    processors: list[_Processor]
    inputs: list[_Processor | None]  # None: this port's records wake nothing
    outputs: list[_Processor]


def describe(topology: Topology, style: str = "text") -> str:
    """`style`: "text" as Kafka Streams prints it, "mermaid" for a picture, "names" for unstable names."""
    match style:
        case "text":
            return _text(topology)
        case "mermaid":
            return _mermaid(topology)
        case "names":
            return _names(topology)
    raise UsageError(f'a description\'s style is {style!r}; give "text", "mermaid" or "names"')


def unstable_names(topology: Topology) -> list[tuple[str, str]]:
    """Returns the operators whose state or topic has a name derived from their place, and that name.

    Adding an operator above renames them, and then they start without their state.
    """
    found: dict[str, str] = {}
    for node in topology.nodes:
        for store in stores_of(node):
            # A global table's rows come from its topic, whatever its store is called.
            if moves_with_its_place(store) and topology.store(store).kind != "global":
                found.setdefault(store, node.name)
        if isinstance(node.operator, nodes.Repartition) and moves_with_its_place(node.operator.topic):
            found[node.operator.topic] = node.name
    return [(operator, name) for name, operator in found.items()]


def _names(topology: Topology) -> str:
    lines = [f"{name} of {operator}: derived from its place" for operator, name in unstable_names(topology)]
    return "\n".join(lines) + "\n" if lines else "every operator that keeps state has a name of its own\n"


# As text


def _text(topology: Topology) -> str:
    # Those of global tables are numbered with the others, in the order in which they were built.
    parts = [
        (topology.nodes.index(sub.nodes[0]), _processors(sub), "", [""]) for sub in topology.described_sub_topologies
    ]
    parts += [
        (place, _global(topology, node), " for global store (will not generate tasks)", [])
        for place, node in enumerate(topology.nodes)
        if isinstance(node.operator, nodes.GlobalTableSource)
    ]
    lines = ["Topologies:"]
    for number, (_, processors, about, end) in enumerate(sorted(parts, key=lambda part: part[0])):
        lines.append(f"{'  ' if number else '   '}Sub-topology: {number}{about}")
        lines.extend(_lines(processors))
        lines.extend(end)
    return "\n".join(lines) + "\n"


def _lines(processors: Sequence[_Processor]) -> Iterator[str]:
    for processor in sorted(processors, key=_order):
        yield f"    {processor.kind}: {processor.name} ({processor.about})"
        if processor.kind != "Sink":
            yield f"      --> {_joined(sorted(processor.after, key=_order))}"
        if processor.kind != "Source":
            yield f"      <-- {_joined(processor.before)}"


def _order(processor: _Processor) -> tuple[int, str]:
    return -processor.weigh(), processor.name


def _joined(processors: Sequence[_Processor]) -> str:
    return ", ".join(processor.name for processor in processors) or "none"


# Processors


def _processors(sub: SubTopology) -> list[_Processor]:
    parts = {node.name: _part(node) for node in sub.nodes}
    found: list[_Processor] = [processor for part in parts.values() for processor in part.processors]
    readers: dict[str, _Processor] = {}
    for node in sub.inputs:
        if isinstance(node.operator, nodes.Repartition):
            source = _Processor("Source", node.aliases[-1], f"topics: [{node.operator.topic}]")
            readers[node.name] = source
            found.append(source)
    for node in sub.nodes:
        for port, parent in enumerate(node.parents):
            below = parts[node.name].inputs[port]
            if below is not None:
                for above in [readers[parent]] if parent in readers else parts[parent].outputs:
                    _arrow(above, below)
    return found


def _part(node: nodes.Node) -> _Part:
    operator = node.operator
    match operator:
        case nodes.Source():
            return _alone(_Processor("Source", node.name, f"topics: [{', '.join(operator.topics)}]"), node)
        case nodes.Sink():
            chosen = not isinstance(operator.topic, str)
            about = f"extractor class: {_called(operator.topic)}" if chosen else f"topic: {operator.topic}"
            return _alone(_Processor("Sink", node.name, about), node)
        case nodes.Repartition():
            sink = _Processor("Sink", node.aliases[-2], f"topic: {operator.topic}")
            nulls = [_processor(name) for name in node.aliases[:-2]]
            return _chain([*nulls, sink])
        case nodes.StreamStreamJoin():
            return _stream_stream(node, operator)
        case nodes.TableTableJoin():
            this = _processor(node.aliases[0], operator.right_store)
            other = _processor(node.aliases[1], operator.left_store)
            merge = _processor(node.name, operator.store)
            return _merged([this, other], merge)
        case nodes.StreamTableJoin():
            part = _alone(_processor(node.name, *stores_of(node)), node)
            part.inputs[1] = None
            return part
        case nodes.StreamGlobalTableJoin():
            return _alone(_processor(node.name), node)
        case nodes.ForeignKeyRespond():
            receive = _processor(node.name, operator.subscription_store)
            answer = _processor(node.aliases[0], operator.right_store)
            update = _processor(node.aliases[1], operator.subscription_store)
            _arrow(receive, answer)
            return _Part([receive, answer, update], [receive, update], [answer, update])
        case nodes.ForeignKeyResolve():
            resolver = _processor(node.aliases[0], operator.left_store)
            result = _processor(node.name, operator.store)
            return _chain([resolver, result])
    if node.aliases:  # a co-group
        (store,) = stores_of(node)
        return _merged([_processor(name, store) for name in node.aliases], _processor(node.name))
    return _alone(_processor(node.name, *stores_of(node)), node)


def _stream_stream(node: nodes.Node, operator: nodes.StreamStreamJoin) -> _Part:
    """Each side goes into its own store, then looks into the other one's."""
    this_windowed, other_windowed, this, other = node.aliases
    left, right, outer = operator.left_store, operator.right_store, operator.outer_store
    windowed = [_processor(this_windowed, left), _processor(other_windowed, right)]
    joins = [_processor(this, right, outer), _processor(other, left, outer)]
    part = _merged(joins, _processor(node.name))
    for above, below in zip(windowed, joins, strict=True):
        _arrow(above, below)
    return _Part([*windowed, *part.processors], list(windowed), part.outputs)


def _processor(name: str, *stores: str | None) -> _Processor:
    return _Processor("Processor", name, f"stores: [{', '.join(sorted(store for store in stores if store))}]")


def _alone(processor: _Processor, node: nodes.Node) -> _Part:
    return _Part([processor], [processor for _ in node.parents], [processor])


def _chain(processors: list[_Processor]) -> _Part:
    for above, below in pairwise(processors):
        _arrow(above, below)
    return _Part(processors, [processors[0]], [processors[-1]])


def _merged(sides: list[_Processor], merge: _Processor) -> _Part:
    for side in sides:
        _arrow(side, merge)
    return _Part([*sides, merge], list(sides), [merge])


def _arrow(above: _Processor, below: _Processor) -> None:
    above.after.append(below)
    below.before.append(above)


def _global(topology: Topology, node: nodes.Node) -> list[_Processor]:
    part = _part(topology.node(node.parents[0]))
    rows = _processor(node.name, *stores_of(node))
    _arrow(part.outputs[0], rows)
    return [*part.processors, rows]


def _called(function: object) -> str:
    return getattr(function, "__qualname__", None) or type(function).__qualname__


# As a Mermaid diagram


def _mermaid(topology: Topology) -> str:
    """Topics are the boxes between sub-topologies; a store is a cylinder beside the operators that use it."""
    ids: dict[str, str] = {}
    lines = ["flowchart TD"]
    arrows: list[str] = []

    def place(what: str, name: str) -> str:
        known = f"{what} {name}"
        if known not in ids:
            ids[known] = f"{what}{len(ids)}"
            if what == "topic":
                lines.append(f'  {ids[known]}[/"{_quoted(name)}"/]')
        return ids[known]

    for node in topology.nodes:
        for name in node.operator.topics if isinstance(node.operator, nodes.Source) else ():
            place("topic", name)
    for sub in topology.described_sub_topologies:
        lines.append(f'  subgraph sub{sub.number} ["Sub-topology {sub.number}"]')
        shown = [
            node for node in sub.nodes if not isinstance(node.operator, nodes.Source | nodes.Sink | nodes.Repartition)
        ]
        lines.extend(f'    {place("node", node.name)}["{_quoted(node.name)}"]' for node in shown)
        lines.extend(f'    {place("store", spec.name)}[("{_quoted(spec.name)}")]' for spec in sub.stores)
        lines.append("  end")
        arrows.extend(f"  {place('node', n.name)} -.- {place('store', s)}" for n in shown for s in stores_of(n))
    for node in topology.nodes:
        if isinstance(node.operator, nodes.GlobalTableSource):
            lines.append(f'  {place("store", node.operator.store)}[("{_quoted(node.operator.store)} (global)")]')
        for parent in node.parents:
            for above in [place(*at) for at in _places(topology.node(parent))]:
                arrows.append(f"  {above} --> {place(*_places(node)[0])}")
    return "\n".join([*lines, *dict.fromkeys(arrows)]) + "\n"


def _places(node: nodes.Node) -> list[tuple[str, str]]:
    """Returns where records leave or enter a node: kind and name of each place."""
    match node.operator:
        case nodes.Source(topics=topics):
            return [("topic", name) for name in topics]
        case nodes.Repartition(topic=name):
            return [("topic", name)]
        case nodes.Sink(topic=name):
            return [("topic", name if isinstance(name, str) else f"{_called(name)}()")]
        case nodes.GlobalTableSource(store=store):
            return [("store", store)]
    return [("node", node.name)]


def _quoted(name: str) -> str:
    return name.replace('"', "#quot;")
