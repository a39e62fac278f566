/** Deploys a version of a view: Python files of this machine, and the function in them that has `@view`. */

import { html, useState } from './lib.js';
import { url } from './api.js';
import { FormDialog, pairs } from './dialog.js';
import { Field } from './parts.js';

/** Functions below `@view(...)`, also with further decorators between. */
const VIEWS = /^@view\b[\s\S]*?^def\s+([A-Za-z_]\w*)/gm;
const MAX_BYTES = 900 * 1024;
/** The console takes requests of 1 MiB. */

/** @param {{host: number|string, view?: string, onClose: () => void, onDone: (made: any) => void}} props */
export function Deploy({ host, view, onClose, onDone }) {
  const [files, setFiles] = useState(/** @type {Record<string, string>} */ ({}));
  const [entry, setEntry] = useState('');
  const [settings, setSettings] = useState('');
  const [wrong, setWrong] = useState('');
  const found = Object.entries(files).flatMap(([name, text]) => [...text.matchAll(VIEWS)].map(([, made]) => `${name}:${made}`));
  const choose = async (/** @type {any} */ event) => {
    const chosen = [...event.currentTarget.files];
    const size = chosen.reduce((sum, file) => sum + file.size, 0);
    if (size > MAX_BYTES) {
      setFiles({});
      setWrong(`The files have ${size} bytes, and the page sends at most ${MAX_BYTES}. Deploy them with suiro view deploy.`);
      return;
    }
    /** @type {Record<string, string>} */
    const read = {};
    for (const file of chosen) read[file.name] = await file.text();
    setFiles(read);
    setWrong('');
    setEntry('');
  };
  return html`<${FormDialog} title=${view === undefined ? 'Deploy a view' : 'Deploy a version'} action="Deploy" wide target=${url(['views', host])} ready=${Object.keys(files).length > 0}
    body=${() => ({ entry: entry || found[0] || '', files, settings: pairs(settings, 'Settings') })} onClose=${onClose} onDone=${onDone}>
    <p>The host checks the code first. It runs on the host, and reads its inputs from their beginning. Readers stay where they are.</p>
    <${Field} label="Python files" note="The file of the view, and the modules beside it that it imports" wide><input type="file" accept=".py" multiple data-first onChange=${choose} /><//>
    ${wrong && html`<div class="notice error" role="alert">${wrong}</div>`}
    ${found.length > 1 && html`<${Field} label="View" wide><select class="mono" value=${entry || found[0]} onChange=${(/** @type {any} */ event) => setEntry(event.currentTarget.value)}>
      ${found.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}</select><//>`}
    ${found.length === 1 && html`<p>View <b class="mono">${found[0]}</b></p>`}
    ${found.length === 0 && Object.keys(files).length > 0 && html`<${Field} label="View" note="APP.PY:FUNCTION, the function that has @view" wide><input class="mono" value=${entry} spellcheck=${false} onInput=${(/** @type {any} */ event) => setEntry(event.currentTarget.value)} /><//>`}
    <${Field} label="Settings" note="One name=value per line, as for suiro view deploy --set" wide><textarea class="mono" rows="2" value=${settings} spellcheck=${false} onInput=${(/** @type {any} */ event) => setSettings(event.currentTarget.value)}></textarea><//>
  <//>`;
}
