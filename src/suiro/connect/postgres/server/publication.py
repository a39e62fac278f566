"""The publication: which tables are captured, and their definitions in the catalog.

Each returned table can be captured: it has a key for its records, and a replica identity that identifies changed and
deleted rows by that key. Any other table raises `ConfigError` with the statement that fixes it. All facts are read in
one snapshot: several statements with an ALTER TABLE between them would describe a table that never existed.

| replica identity | key of the records |
|---|---|
| default | the primary key |
| using index | the index's columns |
| full | the primary key; else the first unique index over columns that are NOT NULL; else all columns |
| nothing, or default without a primary key | rejected |
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from suiro.connect.postgres.encoding.names import quoted
from suiro.connect.postgres.options import CaptureOptions
from suiro.connect.postgres.server.database import Database
from suiro.errors import ConfigError, TransientError, UsageError

FIRST_NORMAL_OID = 16_384  # lower oids belong to objects of the server itself
MAX_ATTEMPTS = 5
"""To read tables that are altered meanwhile."""

T = TypeVar("T")

logger = logging.getLogger(__name__)


class TableDroppedError(ConfigError):
    """The table was dropped, or taken out of the publication, after the publication's tables were listed."""


class _ConcurrentAlterError(TransientError):
    """A column is published that the snapshot of the catalogue does not have yet."""


# The oids of a table and all partitions below it, without locks.
_PARTS = (
    "with recursive parts (oid) as (select %(oid)s::oid union all select i.inhrelid from parts join pg_class c on"
    " c.oid = parts.oid and c.relkind = 'p' join pg_inherits i on i.inhparent = parts.oid)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    name: str
    type_oid: int
    typmod: int
    number: int = 0  # pg_attribute.attnum, which a column keeps when it is renamed
    has_stored_default: bool = False  # older rows have a value of it: a default, or a generated one
    collation: str | None = None  # quoted
    version: int = 0  # pg_attribute.xmin: changes with each ALTER TABLE of the column
    has_domains_within: bool = False  # a literal of its type would call constraints that users define
    attributes: tuple[str, ...] = ()  # of the composite types within: the type's oid, the number and the name


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A published table. `columns` are the published ones, in their order. `published_as` changes when the table is
    removed from the publication, or when the publication is altered."""

    oid: int
    schema: str
    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    key_is_unique: bool  # false: all columns are the key, and no index orders them
    row_filter: str | None
    # pg_class.relfilenode, or a hash of those of partitions: changes when the table is rewritten.
    file: int = 0
    key_operators: tuple[str, ...] = ()  # schemas of the operators for the key's columns; empty: pg_catalog
    attributes: int = 0  # pg_class.relnatts: the highest number that a column has had
    is_partitioned: bool = False
    published_as: str = ""

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def has_key_literals(self) -> bool:
        return not any(one.has_domains_within for one in self.columns if one.name in self.key)

    @property
    def is_divisible(self) -> bool:
        """Whether rows can be read by bounds of the key."""
        return self.key_is_unique and self.has_key_literals

    @property
    def operator_schemas(self) -> tuple[str, ...]:
        """Returns the schema of the operators of each column of the key, quoted."""
        return self.key_operators or ("pg_catalog",) * len(self.key)

    @property
    def sql_rows(self) -> str:
        """Returns the table for a FROM clause, without the rows of tables that inherit from it: the stream has those
        under the names of these tables."""
        name = quoted(self.schema, self.name)
        return name if self.is_partitioned else f"ONLY {name}"


def ensure_publication(database: Database, options: CaptureOptions, version: int) -> bool:
    """Creates the publication, or adds missing tables of `options.tables`. Returns whether it was created."""
    name = options.publication
    found = database.row(
        "select puballtables, pubinsert and pubupdate and pubdelete and pubtruncate, pubviaroot from pg_publication"
        " where pubname = %s",
        (name,),
        what=f"read publication {name}",
    )
    if found is None:
        _create(database, options, version)
        return True
    if not found[1]:
        raise ConfigError(
            f"publication {name} leaves out some operations; run ALTER PUBLICATION {quoted(name)} SET (publish = "
            "'insert, update, delete, truncate')"
        )
    if not found[2]:
        _refuse_partitioned(database, options)
    if not options.tables or found[0]:
        return False
    published = {f"{schema}.{table}" for schema, table in _published(database, name)}
    missing = [table for table in options.tables if table not in published]
    if missing:
        names = ", ".join(_sql_name(database, table) for table in missing)
        _require_keys(database, missing)
        statement = f"ALTER PUBLICATION {quoted(name)} ADD TABLE {names}"
        try:
            database.rows(statement, what=f"add {', '.join(missing)} to publication {name}")
        except UsageError as error:
            raise ConfigError(f"{error}. Let the owner run: {statement}") from error
        logger.info("publication %s has got %s", name, ", ".join(missing))
    return False


def _refuse_partitioned(database: Database, options: CaptureOptions) -> None:
    """Raises `ConfigError` for partitioned tables: the publication has their partitions under their own names."""
    found = database.rows(
        "select n.nspname || '.' || c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace"
        " where c.relkind = 'p' and n.nspname || '.' || c.relname = any(%s) order by 1",
        (list(options.tables),),
        what="look for partitioned tables",
    )
    if found:
        raise ConfigError(
            f"publication {options.publication} has the partitions of {', '.join(row[0] for row in found)} by their"
            " own names. Choose: ALTER PUBLICATION "
            f"{quoted(options.publication)} SET (publish_via_partition_root = true); or name the partitions to capture "
            "(tables, --tables)"
        )


def _create(database: Database, options: CaptureOptions, version: int) -> None:
    settings = "publish_via_partition_root = true"  # a partitioned table is one topic
    if version >= 180000:
        settings += ", publish_generated_columns = stored"
    if options.tables:
        what = "FOR TABLE " + ", ".join(_sql_name(database, table) for table in options.tables)
    else:
        what = "FOR ALL TABLES"
    _require_keys(database, options.tables)
    statement = f"CREATE PUBLICATION {quoted(options.publication)} {what} WITH ({settings})"
    try:
        database.rows(statement, what=f"create publication {options.publication}")
    except UsageError as error:
        raise ConfigError(
            f"{error}. Let a role run it that may (for all tables: a superuser; else the tables' owner with CREATE on "
            f"the database): {statement}"
        ) from error


def _require_keys(database: Database, tables: Sequence[str]) -> None:
    """Raises `ConfigError` for a table without a key, before it is published: from then on, Postgres would refuse the
    UPDATE and DELETE of everybody. Partitions have replica identities of their own. `tables`: empty for all."""
    found = database.rows(
        "with recursive parts(oid) as (select c.oid from pg_class c join pg_namespace n on n.oid = c.relnamespace where"
        f" case when %(all)s then c.oid >= {FIRST_NORMAL_OID} else n.nspname || '.' || c.relname = any(%(tables)s) end"
        " union select i.inhrelid from parts join pg_class c using (oid) join pg_inherits i on i.inhparent = c.oid"
        " where c.relkind = 'p')"
        " select c.oid, c.relreplident, n.nspname, c.relname from parts join pg_class c using (oid) join pg_namespace n"
        " on n.oid = c.relnamespace where c.relkind in ('r', 'p') and c.relpersistence = 'p'"
        " order by n.nspname, c.relname",
        {"all": not tables, "tables": list(tables)},
        what="look for tables without a key",
    )
    indexes = _indexes(database, [row[0] for row in found])
    for oid, identity, schema, name in found:
        _key_columns(indexes.get(oid, []), identity, quoted(schema, name))


def _sql_name(database: Database, table: str) -> str:
    schema, _, name = table.partition(".")
    kind = database.row(
        "select c.relkind, c.relpersistence from pg_class c join pg_namespace n on n.oid = c.relnamespace"
        " where n.nspname = %s and c.relname = %s",
        (schema, name),
        what=f"look for table {table}",
    )
    if kind is None:
        raise ConfigError(
            f"table {table} does not exist in this database; --tables takes schema.table, comma between, in the "
            "case of the database and without quotes"
        )
    if kind[0] not in ("r", "p") or kind[1] != "p":
        kinds = {
            "v": "a view",
            "m": "a materialised view",
            "f": "a foreign table",
            "S": "a sequence",
            "i": "an index",
        }
        raise ConfigError(
            f"{table} is {kinds.get(kind[0], 'unlogged or temporary')}: Postgres's log has changes of ordinary tables "
            "only"
        )
    return quoted(schema, name)


def _published(database: Database, publication: str) -> list[tuple[str, str]]:
    rows = database.rows(
        "select schemaname, tablename from pg_publication_tables where pubname = %s order by 1, 2",
        (publication,),
        what=f"list the tables of publication {publication}",
    )
    return [(row[0], row[1]) for row in rows]


def published_tables(database: Database, options: CaptureOptions, version: int) -> list[Table]:
    """Returns all captured tables. Raises `ConfigError` if one of them cannot be captured."""

    def look() -> list[Table]:
        names = _published(database, options.publication)
        if options.tables:
            wanted = set(options.tables)
            names = [one for one in names if f"{one[0]}.{one[1]}" in wanted]
        return _read_tables(database, options.publication, names, version)

    return _in_one_snapshot(database, look)


def read_table(database: Database, publication: str, schema: str, name: str, version: int) -> Table:
    """Raises `ConfigError` where the table cannot be captured."""
    found = _in_one_snapshot(database, lambda: _read_tables(database, publication, [(schema, name)], version))
    if not found:
        raise TableDroppedError(
            f"table {schema}.{name} does not exist any more, or is not in publication {publication} any more"
        )
    return found[0]


def _in_one_snapshot(database: Database, look: Callable[[], T]) -> T:
    """Calls `look` in a snapshot, again if it sees two states of the catalogue: functions of the server see what was
    committed since the snapshot was taken, tables do not."""
    for _ in range(MAX_ATTEMPTS - 1):
        try:
            with database.own_snapshot():
                return look()
        except _ConcurrentAlterError as error:
            logger.debug("%s", error)
    with database.own_snapshot():
        return look()


def _read_tables(database: Database, publication: str, names: Sequence[tuple[str, str]], version: int) -> list[Table]:
    """Returns those of the tables that exist and are published. The number of statements does not depend on the number
    of tables, except for partitioned ones."""
    found = database.rows(
        f"select c.oid, n.nspname, c.relname, c.relreplident, c.relkind = 'p', c.relfilenode, c.relnatts,"
        f" {_published_as(version)}, has_table_privilege(c.oid, 'select') from pg_class c join pg_namespace n"
        " on n.oid = c.relnamespace"
        " where (n.nspname, c.relname) in (select * from unnest(%(schemas)s::name[], %(names)s::name[]))"
        " order by n.nspname, c.relname",
        {
            "schemas": [schema for schema, _ in names],
            "names": [name for _, name in names],
            "publication": publication,
        },
        what=f"read the tables of publication {publication}",
    )
    # Privileges are those of now: null after a DROP.
    oids = [row[0] for row in found if row[-1] is not None]
    published = _published_parts(database, publication, oids, version)
    columns = _columns(database, oids, published)
    indexes = _indexes(database, oids)
    oids_of_types = {column.type_oid for of_table in columns.values() for column in of_table}
    types = [oid for oid in oids_of_types if oid >= FIRST_NORMAL_OID]
    operators = _operators(database, types)
    within = _within_types(database, types)
    tables = []
    for oid, schema, name, identity, is_partitioned, file, attributes, published_as, may_select in found:
        if oid not in columns:
            continue
        if not may_select:
            raise ConfigError(
                f"no permission to read {schema}.{name}: GRANT SELECT ON {quoted(schema, name)} TO this role"
            )
        of_table = [replace(one, **within.get(one.type_oid, {})) for one in columns[oid]]
        if is_partitioned:
            file, of_table = _of_partitions(database, oid, f"{schema}.{name}", of_table)
        key, unique = _key(indexes.get(oid, []), identity, quoted(schema, name), of_table)
        type_of = {column.name: column.type_oid for column in of_table}
        tables.append(
            Table(
                oid=oid,
                schema=schema,
                name=name,
                columns=tuple(of_table),
                key=key,
                key_is_unique=unique,
                key_operators=tuple(operators.get(type_of[column], "pg_catalog") for column in key),
                row_filter=published[oid].row_filter,
                file=file,
                attributes=attributes,
                is_partitioned=is_partitioned,
                published_as=published_as or "",
            )
        )
    return tables


def _published_as(version: int) -> str:
    """SQL for a text that identifies the publication, its last ALTER, and the entry of table `c` in it. An entry that
    is removed and added again gets another oid. (`ADD TABLE` of another table changes none of these.)"""
    of_schema = ""
    if version >= 150000:
        of_schema = ", (select s.oid from pg_publication_namespace s where s.pnpubid = p.oid and s.pnnspid = n.oid)"
    # The array lets the condition use an index.
    return (
        "(select concat_ws(' ', p.oid, p.xmin, (select max(r.oid) from pg_publication_rel r where r.prpubid = p.oid"
        " and r.prrelid = any(c.oid || array(select relid::oid from pg_partition_ancestors(c.oid))))"
        f"{of_schema}) from pg_publication p where p.pubname = %(publication)s)"
    )


def _of_partitions(database: Database, oid: int, full_name: str, columns: list[Column]) -> tuple[int, list[Column]]:
    """Returns facts that only the partitions have: a hash of their files, and the columns, of which some may have
    values in rows from before they were added."""
    ((file, filled),) = database.rows(
        f"{_PARTS} select coalesce((select ('x' || left(md5(string_agg(c.oid || ' ' || c.relfilenode, ',' order by"
        " c.oid)), 15))::bit(60)::int8 from parts join pg_class c using (oid) where c.relfilenode <> 0), 1),"
        " array(select distinct a.attname::text from parts join pg_attribute a on a.attrelid = parts.oid where"
        " a.atthasmissing and not a.attisdropped)",
        {"oid": oid},
        what=f"list the partitions of {full_name}",
    )
    return file, [replace(one, has_stored_default=one.has_stored_default or one.name in filled) for one in columns]


class _Published(NamedTuple):
    """The published part of a table: the numbers of its columns (None: all that are not generated), and its rows."""

    columns: Sequence[int] | None
    row_filter: str | None


def _published_parts(database: Database, publication: str, oids: Sequence[int], version: int) -> dict[int, _Published]:
    if version < 150000:
        return {oid: _Published(None, None) for oid in oids}
    found = database.rows(
        "select t.relid, t.attrs::int2[], pg_get_expr(t.qual, t.relid) from pg_get_publication_tables(%s) t"
        " where t.relid = any(%s::oid[])",
        (publication, list(oids)),
        what=f"read what publication {publication} has of its tables",
    )
    return {oid: _Published(*row) for oid, *row in found}


def _columns(database: Database, oids: Sequence[int], published: Mapping[int, _Published]) -> dict[int, list[Column]]:
    """Returns the columns by table. Tables that are no longer published are left out."""
    rows = database.rows(
        "select attrelid, attname, atttypid, atttypmod, attnum, attgenerated, atthasmissing, (select"
        " quote_ident(n.nspname) || '.' || quote_ident(c.collname) from pg_collation c join pg_namespace n on"
        " n.oid = c.collnamespace where c.oid = attcollation), xmin::text::int8 from pg_attribute"
        " where attrelid = any(%s::oid[]) and attnum > 0 and not attisdropped order by attrelid, attnum",
        (list(oids),),
        what="list the columns of tables",
    )
    found: dict[int, list[Column]] = {oid: [] for oid in oids if oid in published}
    seen: dict[int, set[int]] = {oid: set() for oid in found}
    for oid, name, type_oid, typmod, number, generated, has_missing, collation, version in rows:
        if oid not in found:
            continue
        seen[oid].add(number)
        numbers = published[oid].columns
        if number in numbers if numbers is not None else not generated:
            found[oid].append(
                Column(
                    name=name,
                    type_oid=type_oid,
                    typmod=typmod,
                    number=number,
                    has_stored_default=bool(generated) or has_missing,
                    collation=collation,
                    version=version,
                )
            )
    for oid in found:
        if not set(published[oid].columns or ()) <= seen[oid]:
            raise _ConcurrentAlterError(f"table {oid} is being altered; look again")
    return found


class _Index(NamedTuple):
    """A unique index. `is_not_null`: whether all of its columns are NOT NULL."""

    is_primary: bool
    is_replica_identity: bool
    columns: list[str]
    is_not_null: bool


def _indexes(database: Database, oids: Sequence[int]) -> dict[int, list[_Index]]:
    """Returns the unique indexes of each table, the primary key first."""
    found: dict[int, list[_Index]] = {}
    for oid, *row in database.rows(
        "select i.indrelid, i.indisprimary, i.indisreplident, array(select a.attname::text from unnest(i.indkey::int[])"
        " with ordinality k(n, place) join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.n"
        " where k.place <= i.indnkeyatts order by k.place), (select bool_and(a.attnotnull)"
        " from unnest(i.indkey::int[]) with ordinality k(n, place) join pg_attribute a on a.attrelid = i.indrelid and"
        " a.attnum = k.n where k.place <= i.indnkeyatts) from pg_index i where i.indrelid = any(%s::oid[]) and"
        " i.indisunique and i.indisvalid and i.indimmediate and i.indpred is null and i.indexprs is null"
        " order by i.indisprimary desc, i.indexrelid",
        (list(oids),),
        what="list the indexes of tables",
    ):
        found.setdefault(oid, []).append(_Index(*row))
    return found


def _operators(database: Database, types: Sequence[int]) -> dict[int, str]:
    """Returns the schema of the operators that sort each of these types, such as `citext`."""
    found = database.rows(
        "with recursive known(oid, base) as (select t.oid, t.oid from pg_type t where t.oid = any(%s::oid[]) union all"
        " select k.oid, t.typbasetype from known k join pg_type t on t.oid = k.base where t.typtype = 'd')"
        " select k.oid, quote_ident(n.nspname) from known k join pg_opclass c on c.opcintype = k.base and c.opcdefault"
        " join pg_am a on a.oid = c.opcmethod and a.amname = 'btree' join pg_amop o on o.amopfamily = c.opcfamily and"
        " o.amoplefttype = c.opcintype and o.amoprighttype = c.opcintype and o.amopstrategy = 5"
        " join pg_operator p on p.oid = o.amopopr join pg_namespace n on n.oid = p.oprnamespace",
        (types,),
        what="look for the operators of types",
    )
    return dict(found)


def _within_types(database: Database, types: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Returns facts of `Column` about what is within types: whether arrays, ranges and composite types hold values of a
    domain (for a domain, those below it), and the attributes of composite types."""
    found = database.rows(
        "with recursive below(root, oid) as (select o, o from unnest(%s::oid[]) o union all select b.root,"
        " t.typbasetype from below b join pg_type t using (oid) where t.typtype = 'd'),"
        " parts(root, oid) as (select b.root, b.oid from below b join pg_type t using (oid) where t.typtype <> 'd'"
        " union select p.root, n.oid from parts p join pg_type t using (oid) cross join lateral (select t.typelem where"
        " t.typelem <> 0 union all select t.typbasetype where t.typbasetype <> 0 union all select r.rngsubtype from"
        " pg_range r where t.oid in (r.rngtypid, r.rngmultitypid) union all select a.atttypid from pg_attribute a where"
        " t.typtype = 'c' and a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped) n(oid))"
        " select p.root, bool_or(t.typtype = 'd'), coalesce(array_agg(t.oid || ' ' || a.attnum || ' ' || a.attname"
        " order by t.oid, a.attnum) filter (where a.attnum > 0), '{}') from parts p join pg_type t using (oid)"
        " left join pg_attribute a on t.typtype = 'c' and a.attrelid = t.typrelid and not a.attisdropped group by 1",
        (types,),
        what="look at what is within types",
    )
    return {
        oid: {"has_domains_within": has_domains, "attributes": tuple(attributes)}
        for oid, has_domains, attributes in found
    }


def key_if_full(database: Database, oid: int) -> Sequence[str] | None:
    """Returns the columns of the key that a table has now if its replica identity is full; None: all of them."""
    return _key_columns(_indexes(database, [oid]).get(oid, []), "f", "")


_NO_KEY = {
    "n": " has REPLICA IDENTITY NOTHING: deleted rows cannot be identified",
    "d": " has no primary key (or a deferrable one): deleted rows cannot be identified",
    "i": ": the index of its replica identity was dropped",
}
"""By replica identity, why a table has no key."""


def _key(
    indexes: Sequence[_Index], identity: str, sql_name: str, columns: Sequence[Column]
) -> tuple[tuple[str, ...], bool]:
    """Returns the key's columns and whether they are unique."""
    key = _key_columns(indexes, identity, sql_name)
    names = {column.name: None for column in columns}
    if key is None:
        return tuple(names), False
    hidden = [name for name in key if name not in names]
    if hidden:
        raise ConfigError(
            f"{sql_name}: column {hidden[0]!r} of the key is not published; add it to the publication's columns"
        )
    return tuple(key), True


def _key_columns(indexes: Sequence[_Index], identity: str, sql_name: str) -> Sequence[str] | None:
    """Returns None if all columns are the key. Raises `ConfigError` if the table has no key."""
    primary = next((one.columns for one in indexes if one.is_primary), None)
    if identity == "f":
        return primary or next((one.columns for one in indexes if one.is_not_null), None)
    key = {"d": primary, "i": next((one.columns for one in indexes if one.is_replica_identity), None)}.get(identity)
    if key is None:
        raise ConfigError(
            f"{sql_name}{_NO_KEY[identity]}. Choose: ALTER TABLE {sql_name} ADD PRIMARY KEY (...); or ALTER TABLE "
            f"{sql_name} REPLICA IDENTITY USING INDEX ... (unique, not deferrable, columns NOT NULL); or ALTER TABLE "
            f"{sql_name} REPLICA IDENTITY FULL (the key of a record is then the whole row)"
        )
    return key
