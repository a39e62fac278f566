/** Who writes a topic and who reads it: what the API tells (applications), groups, and views by their versions. */

import { html } from './lib.js';
import { url, useLoad } from './api.js';
import { Icon } from './icons.js';
import { me } from './live.js';
import { Panel } from './parts.js';
import { href, SafeLink } from './router.js';

/** @typedef {{kind: string, name: string, direction: 'reads'|'writes', link: string}} Related */

/** @type {Record<string, string>} */
const ICONS = { group: 'groups', application: 'applications', connector: 'connectors', view: 'views' };

/** @param {any} views what `/views` answers @param {string} topic @returns {Related[]} */
function ofViews(views, topic) {
  return (views?.hosts ?? []).flatMap((/** @type {any} */ host) =>
    host.views.flatMap((/** @type {any} */ view) => {
      const living = view.versions.filter((/** @type {any} */ one) => one.state === 'ready' || one.state === 'building');
      const to = { kind: 'view', name: view.view, link: href(['views', host.host, view.view]) };
      return [
        ...(living.some((/** @type {any} */ one) => (one.inputs ?? []).includes(topic)) ? [{ ...to, direction: 'reads' }] : []),
        ...(living.some((/** @type {any} */ one) => one.output_topic === topic) ? [{ ...to, direction: 'writes' }] : []),
      ];
    }),
  );
}

/** Writers left of the topic, readers right of it. @param {{topic: any}} props */
export function Lineage({ topic }) {
  const has = me.value?.has;
  const views = useLoad(has?.views ? url(['views']) : null);
  /** @type {Related[]} */
  const found = [
    ...(topic.related ?? []),
    ...ofViews(views.data, topic.name),
    ...topic.groups.map((/** @type {any} */ group) => ({ kind: 'group', name: group.group, direction: 'reads', link: href(['groups', group.group]) })),
  ];
  if (found.length === 0) return null;
  const side = (/** @type {string} */ direction, /** @type {string} */ none) => {
    const known = new Map(found.filter((one) => one.direction === direction).map((one) => [`${one.kind} ${one.name}`, one]));
    return html`<ul>
      ${[...known].map(([key, one]) => html`<li key=${key}><${Icon} name=${ICONS[one.kind] ?? 'applications'} />
        <${SafeLink} to=${one.link}>${one.name}<//><span class="muted">${one.kind}</span></li>`)}
      ${known.size === 0 && html`<li class="muted">${none}</li>`}
    </ul>`;
  };
  return html`<${Panel} title="Who writes and reads it">
    <div class="lineage">
      ${side('writes', 'no known writer')}
      <${Icon} name="right" /><span class="lineage-topic mono">${topic.name}</span><${Icon} name="right" />
      ${side('reads', 'no known reader')}
    </div>
  <//>`;
}
