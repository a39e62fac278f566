/** Who may do what: access rules, SCRAM users, quotas; and what was changed through this console. */

import { html, useMemo, useState } from './lib.js';
import { Failure, url, useLoad } from './api.js';
import { ConfirmByName, FormDialog, whole } from './dialog.js';
import { bytes, count, Time } from './format.js';
import { Icon } from './icons.js';
import { may } from './live.js';
import { Badge, Empty, Field, Head, Loading, Panel, say, Search, Select, State, Tabs } from './parts.js';
import { href, route, setQuery } from './router.js';
import { DataTable } from './table.js';

const TABS = [
  { id: '', text: 'ACLs', to: href(['security']) },
  { id: 'users', text: 'Users', to: href(['security', 'users']) },
  { id: 'quotas', text: 'Quotas', to: href(['security', 'quotas']) },
  { id: 'audit', text: 'Audit', to: href(['security', 'audit']) },
];

/** @param {{parts: string[]}} props */
export function Security({ parts }) {
  const tab = parts[0] ?? '';
  const [adding, setAdding] = useState(false);
  const names = /** @type {Record<string, string>} */ ({ '': 'Add rule', users: 'Add user', quotas: 'Set quota' });
  return html`
    <${Head} title="Security">
      ${may('admin') && names[tab] && html`<button type="button" class="primary" onClick=${() => setAdding(true)}><${Icon} name="plus" />${names[tab]}</button>`}
    <//>
    <${Tabs} items=${TABS} now=${tab} label="Parts of security" />
    <div class="content">
      ${tab === '' && html`<${Acls} adding=${adding} onClose=${() => setAdding(false)} />`}
      ${tab === 'users' && html`<${Users} adding=${adding} onClose=${() => setAdding(false)} />`}
      ${tab === 'quotas' && html`<${Quotas} adding=${adding} onClose=${() => setAdding(false)} />`}
      ${tab === 'audit' && html`<${Audit} />`}
    </div>
  `;
}

/** @typedef {{adding: boolean, onClose: () => void}} TabProps */

/** @param {TabProps} props */
function Acls({ adding, onClose }) {
  const { data, error, loading, reload } = useLoad(url(['acls']));
  const { filter = '' } = route.value.query;
  const [removing, setRemoving] = useState(/** @type {any} */ (null));
  const rows = useMemo(() => (data?.acls ?? []).filter((/** @type {any} */ acl) => Object.values(acl).join(' ').toLowerCase().includes(filter.toLowerCase())), [data, filter]);
  return html`
    <${Failure} error=${error} retry=${reload} />
    ${loading && html`<${Loading} />`}
    ${data?.off && html`<${Empty} title="The brokers have no authorizer">Everybody who reaches them may do everything. Set <code>authorizer.class.name</code> on the brokers to use access rules.<//>`}
    ${data && !data.off && html`
      <div class="toolbar inside"><${Search} label="Filter rules" value=${filter} onInput=${(/** @type {string} */ text) => setQuery({ filter: text }, { replace: true })} /></div>
      ${data.acls.length === 0 ? html`<${Empty} title="No rules" command="suiro acl add --allow-principal User:billing --operation read --topic orders">Without a rule only super users may do anything.<//>`
        : html`<${Panel} flush><${DataTable} label="Access rules" rows=${rows} first="principal" rowKey=${(/** @type {any} */ row, /** @type {number} */ at) => `${JSON.stringify(row)} ${at}`} columns=${[
          { id: 'principal', title: 'Principal', className: 'clip mono', sort: (/** @type {any} */ row) => row.principal, cell: (/** @type {any} */ row) => row.principal },
          { id: 'permission', title: 'May', width: '100px', sort: (/** @type {any} */ row) => row.permission, cell: (/** @type {any} */ row) => html`<${State} text=${row.permission} tone=${row.permission === 'allow' ? 'good' : 'bad'} />` },
          { id: 'operation', title: 'Operation', width: '150px', sort: (/** @type {any} */ row) => row.operation, cell: (/** @type {any} */ row) => row.operation },
          { id: 'resource', title: 'On', className: 'clip', sort: (/** @type {any} */ row) => `${row.resource_type} ${row.resource_name}`, cell: (/** @type {any} */ row) => html`${row.resource_type} <span class="mono">${row.resource_name}${row.pattern_type === 'prefixed' ? '*' : ''}</span>` },
          { id: 'pattern', title: 'Pattern', width: '100px', cell: (/** @type {any} */ row) => html`<span class="muted">${row.pattern_type}</span>` },
          { id: 'host', title: 'Host', width: '120px', cell: (/** @type {any} */ row) => row.host },
          { id: 'remove', title: '', label: 'Remove', width: '90px', cell: (/** @type {any} */ row) => may('admin') && html`<button type="button" class="small" aria-label=${`Remove the rule of ${row.principal} to ${row.operation} ${row.resource_name}`} onClick=${() => setRemoving(row)}>Remove</button>` },
        ]} /><//>`}
    `}
    ${removing && html`<${FormDialog} title="Remove the rule" action="Remove" danger target=${url(['acls', 'delete'])} body=${() => removing} onClose=${() => setRemoving(null)} onDone=${() => { say('The rule was removed.'); reload(); }}>
      <p><b class="mono">${removing.principal}</b> ${removing.permission === 'allow' ? 'may then no longer' : 'is then no longer denied to'} ${removing.operation} ${removing.resource_type} <b class="mono">${removing.resource_name}</b> by this rule.</p>
    <//>`}
    ${adding && html`<${AddAcl} onClose=${onClose} onDone=${() => { say('The rules were added.'); reload(); }} />`}
  `;
}

/** @param {{onClose: () => void, onDone: () => void}} props */
function AddAcl({ onClose, onDone }) {
  const [form, setForm] = useState({ principals: 'User:', type: 'topic', name: '', pattern: 'literal', operations: 'read, describe', permission: 'allow', hosts: '' });
  const set = (/** @type {string} */ name) => (/** @type {any} */ event) => setForm({ ...form, [name]: event.currentTarget.value });
  const choose = (/** @type {string} */ name) => (/** @type {string} */ value) => setForm({ ...form, [name]: value });
  const listed = (/** @type {string} */ text) => text.split(',').map((part) => part.trim()).filter((part) => part !== '');
  return html`<${FormDialog} title="Add rules" action="Add" wide target=${url(['acls'])} onClose=${onClose} onDone=${onDone} ready=${form.name !== '' && form.principals !== 'User:'}
    body=${() => ({ resources: [{ type: form.type, name: form.name, pattern: form.pattern }], principals: listed(form.principals), operations: listed(form.operations), permission: form.permission, ...(listed(form.hosts).length > 0 ? { hosts: listed(form.hosts) } : {}) })}>
    <div class="fields">
      <${Field} label="Principals"><input class="mono" value=${form.principals} onInput=${set('principals')} /><//>
      <${Select} label="May" value=${form.permission} options=${['allow', 'deny']} onChange=${choose('permission')} />
      <${Field} label="Operations" note="read, write, describe, all, …"><input value=${form.operations} onInput=${set('operations')} /><//>
    </div>
    <div class="fields">
      <${Select} label="On" value=${form.type} options=${['topic', 'group', 'cluster', 'transactional-id', 'delegation-token', 'user']} onChange=${choose('type')} />
      <${Field} label="Name"><input class="mono" value=${form.name} onInput=${set('name')} /><//>
      <${Select} label="Pattern" value=${form.pattern} options=${['literal', 'prefixed']} onChange=${choose('pattern')} />
      <${Field} label="Hosts" note="Leave empty for all"><input value=${form.hosts} onInput=${set('hosts')} /><//>
    </div>
  <//>`;
}

/** @param {TabProps} props */
function Users({ adding, onClose }) {
  const { data, error, loading, reload } = useLoad(url(['users']));
  const [removing, setRemoving] = useState(/** @type {string|null} */ (null));
  return html`
    <${Failure} error=${error} retry=${reload} />
    ${loading && html`<${Loading} />`}
    ${data && (data.users.length === 0 ? html`<${Empty} title="No SCRAM users" command="suiro user add billing --mechanism SCRAM-SHA-512" />`
      : html`<${Panel} flush><${DataTable} label="Users" rows=${data.users} first="name" rowKey=${(/** @type {any} */ row) => row.name} columns=${[
        { id: 'name', title: 'Name', className: 'wrap', sort: (/** @type {any} */ row) => row.name, cell: (/** @type {any} */ row) => html`<span class="mono">${row.name}</span>` },
        { id: 'mechanisms', title: 'Mechanisms', cell: (/** @type {any} */ row) => Object.entries(row.mechanisms).map(([name, iterations]) => html`<${Badge} key=${name}>${name}, ${count(/** @type {number} */ (iterations))} iterations<//> `) },
        { id: 'remove', title: '', label: 'Remove', width: '90px', cell: (/** @type {any} */ row) => may('admin') && html`<button type="button" class="small" aria-label=${`Remove ${row.name}`} onClick=${() => setRemoving(row.name)}>Remove</button>` },
      ]} /><//>`)}
    ${removing !== null && html`<${ConfirmByName} title="Remove user" name=${removing} more=${{ name: removing, confirm: removing }} action="Remove" target=${url(['users', 'delete'])} onClose=${() => setRemoving(null)} onDone=${() => { say(`User ${removing} was removed.`); reload(); }}>
      Clients that log in as this user are refused from then on. Access rules of the user stay.
    <//>`}
    ${adding && html`<${AddUser} onClose=${onClose} onDone=${() => { say('The user was saved.'); reload(); }} />`}
  `;
}

/** @param {{onClose: () => void, onDone: () => void}} props */
function AddUser({ onClose, onDone }) {
  const [form, setForm] = useState({ name: '', mechanism: 'SCRAM-SHA-512', password: '', iterations: '' });
  const set = (/** @type {string} */ name) => (/** @type {any} */ event) => setForm({ ...form, [name]: event.currentTarget.value });
  return html`<${FormDialog} title="Add user, or set a password" action="Save" target=${url(['users'])} onClose=${onClose} onDone=${onDone} ready=${form.name.trim() !== '' && form.password !== ''}
    body=${() => ({ name: form.name.trim(), mechanism: form.mechanism, password: form.password, ...(form.iterations ? { iterations: whole(form.iterations, 'Iterations') } : {}) })}>
    <${Field} label="Name" wide><input class="mono" value=${form.name} autocomplete="off" onInput=${set('name')} /><//>
    <${Field} label="Password" wide><input type="password" value=${form.password} autocomplete="new-password" onInput=${set('password')} /><//>
    <div class="fields">
      <${Select} label="Mechanism" value=${form.mechanism} options=${['SCRAM-SHA-512', 'SCRAM-SHA-256']} onChange=${(/** @type {string} */ mechanism) => setForm({ ...form, mechanism })} />
      <${Field} label="Iterations" note="Leave empty for the default"><input inputmode="numeric" value=${form.iterations} onInput=${set('iterations')} /><//>
    </div>
  <//>`;
}

/** @param {TabProps} props */
function Quotas({ adding, onClose }) {
  const { data, error, loading, reload } = useLoad(url(['quotas']));
  const [removing, setRemoving] = useState(/** @type {any} */ (null));
  const who = (/** @type {any} */ entity) => Object.entries(entity).map(([kind, name]) => `${kind} ${name ?? 'default'}`).join(', ');
  return html`
    <${Failure} error=${error} retry=${reload} />
    ${loading && html`<${Loading} />`}
    ${data && (data.quotas.length === 0 ? html`<${Empty} title="No quotas" command="suiro quota set --user billing --producer-byte-rate 1048576" />`
      : html`<${Panel} flush><${DataTable} label="Quotas" rows=${data.quotas} rowKey=${(/** @type {any} */ row) => JSON.stringify(row.entity)} columns=${[
        { id: 'entity', title: 'Of', className: 'clip', cell: (/** @type {any} */ row) => html`<span class="mono">${who(row.entity)}</span>` },
        { id: 'values', title: 'Limits', cell: (/** @type {any} */ row) => Object.entries(row.values).map(([name, value]) => html`<${Badge} key=${name}>${name} ${name.endsWith('byte_rate') ? `${bytes(/** @type {number} */ (value))}/s` : String(value)}<//> `) },
        { id: 'remove', title: '', label: 'Remove', width: '90px', cell: (/** @type {any} */ row) => may('admin') && html`<button type="button" class="small" aria-label=${`Remove the quota of ${who(row.entity)}`} onClick=${() => setRemoving(row)}>Remove</button>` },
      ]} /><//>`)}
    ${removing && html`<${FormDialog} title="Remove quota" action="Remove" danger target=${url(['quotas'])} body=${() => ({ entity: removing.entity, set: {}, remove: Object.keys(removing.values) })} onClose=${() => setRemoving(null)} onDone=${() => { say('The quota was removed.'); reload(); }}>
      <p>The limits of <b class="mono">${who(removing.entity)}</b> end.</p><//>`}
    ${adding && html`<${SetQuota} onClose=${onClose} onDone=${() => { say('The quota was set.'); reload(); }} />`}
  `;
}

/** @param {{onClose: () => void, onDone: () => void}} props */
function SetQuota({ onClose, onDone }) {
  const [form, setForm] = useState({ kind: 'user', name: '', limit: 'producer_byte_rate', value: '' });
  const set = (/** @type {string} */ name) => (/** @type {any} */ event) => setForm({ ...form, [name]: event.currentTarget.value });
  const choose = (/** @type {string} */ name) => (/** @type {string} */ value) => setForm({ ...form, [name]: value });
  return html`<${FormDialog} title="Set quota" action="Set" target=${url(['quotas'])} onClose=${onClose} onDone=${onDone} ready=${Number(form.value) > 0}
    body=${() => ({ entity: { [form.kind]: form.name.trim() === '' ? null : form.name.trim() }, set: { [form.limit]: Number(form.value) }, remove: [] })}>
    <div class="fields">
      <${Select} label="Of" value=${form.kind} options=${['user', 'client-id', 'ip']} onChange=${choose('kind')} />
      <${Field} label="Name" note="Leave empty for the default of all"><input class="mono" data-first value=${form.name} onInput=${set('name')} /><//>
    </div>
    <div class="fields">
      <${Select} label="Limit" value=${form.limit} options=${['producer_byte_rate', 'consumer_byte_rate', 'request_percentage', 'controller_mutation_rate', 'connection_creation_rate']} onChange=${choose('limit')} />
      <${Field} label="Value"><input inputmode="decimal" value=${form.value} onInput=${set('value')} /><//>
    </div>
  <//>`;
}

function Audit() {
  const { data, error, loading, reload } = useLoad(url(['audit']), { everyMs: 10_000 });
  return html`
    <${Failure} error=${error} retry=${reload} />
    ${loading && html`<${Loading} />`}
    ${data && (data.events.length === 0 ? html`<${Empty} title="Nothing was changed through this console yet" />`
      : html`<${Panel} flush><${DataTable} label="Changes" rows=${data.events} first="-at" rowKey=${(/** @type {any} */ _, /** @type {number} */ at) => String(at)} columns=${[
        { id: 'at', title: 'Time', width: '180px', sort: (/** @type {any} */ row) => row.at, cell: (/** @type {any} */ row) => html`<${Time} ms=${row.at} brief />` },
        { id: 'user', title: 'User', width: '140px', className: 'clip', sort: (/** @type {any} */ row) => row.user, cell: (/** @type {any} */ row) => row.user ?? html`<span class="muted">no login</span>` },
        { id: 'what', title: 'What', className: 'clip mono', cell: (/** @type {any} */ row) => html`<span title=${row.what}>${row.what}</span>` },
        { id: 'status', title: 'Outcome', width: '110px', sort: (/** @type {any} */ row) => row.status, cell: (/** @type {any} */ row) => html`<${State} text=${row.status < 400 ? 'done' : `refused, ${row.status}`} tone=${row.status < 400 ? 'good' : 'bad'} />` },
      ]} /><//>`)}
  `;
}
