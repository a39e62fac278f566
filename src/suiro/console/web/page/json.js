/** JSON without loss: integers beyond 2^53 become BigInt, and a record's own text is shown as it was written. */

import { isInteger, isSafeNumber, parse as parseSlowly } from './vendor/lossless-json/index.js';

const MANY_DIGITS = /\d{16}/;
const LAID_OUT_CHARS = 200_000;
/** A longer text is shown as it is: each token is an element of the page. */
const INDENTED_LEVELS = 40;
/** Deeper ones stand as far to the right: a text of brackets alone would grow by its square. */

/**
 * An answer of the API. The exact parser is many times slower than the browser's, so it runs only where a number could
 * be too long for a double.
 * @param {string} text
 */
export function parse(text) {
  return MANY_DIGITS.test(text) ? parseSlowly(text, null, number) : JSON.parse(text);
}

/** @param {string} digits */
function number(digits) {
  return !isSafeNumber(digits) && isInteger(digits) ? BigInt(digits) : Number(digits);
}

/** For a request's body. @param {any} value */
export function stringify(value) {
  return JSON.stringify(value, (_, each) => (typeof each === 'bigint' ? /** @type {any} */ (JSON).rawJSON?.(`${each}`) ?? Number(each) : each));
}

/** @typedef {{kind: 'key'|'text'|'number'|'word'|'mark', text: string}} Token */

/**
 * The JSON text cut into tokens, laid out with two spaces a level. Its numbers, escapes and repeated keys stay as they
 * were written. Null where it is no JSON, or too long for that.
 * @param {string} text
 * @returns {Token[] | null}
 */
export function layOut(text) {
  if (text.length > LAID_OUT_CHARS) return null;
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  /** @type {Token[]} */
  const tokens = [];
  let depth = 0;
  const lexer = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;
  const parts = text.match(lexer) ?? [];
  const line = () => tokens.push({ kind: 'mark', text: '\n' + '  '.repeat(Math.min(depth, INDENTED_LEVELS)) });
  parts.forEach((part, at) => {
    const next = parts[at + 1];
    if (part === '{' || part === '[') {
      tokens.push({ kind: 'mark', text: part });
      depth += 1;
      if (next !== '}' && next !== ']') line();
    } else if (part === '}' || part === ']') {
      depth -= 1;
      if (parts[at - 1] !== '{' && parts[at - 1] !== '[') line();
      tokens.push({ kind: 'mark', text: part });
    } else if (part === ',') {
      tokens.push({ kind: 'mark', text: part });
      line();
    } else if (part === ':') {
      tokens.push({ kind: 'mark', text: ': ' });
    } else if (part.startsWith('"')) {
      tokens.push({ kind: next === ':' ? 'key' : 'text', text: part });
    } else {
      tokens.push({ kind: /^[-\d]/.test(part) ? 'number' : 'word', text: part });
    }
  });
  return tokens;
}
