export { config } from './config.js';
export { compareLosslessNumber, isLosslessNumber, LosslessNumber, toLosslessNumber } from './LosslessNumber.js';
export { parseLosslessNumber, parseNumberAndBigInt } from './numberParsers.js';
export { parse } from './parse.js';
export { reviveDate } from './reviveDate.js';
export { stringify } from './stringify.js';
export * from './types.js';
export { compareNumber, getUnsafeNumberReason, isInteger, isNumber, isSafeNumber, splitNumber, toSafeNumberOrThrow, UnsafeNumberReason } from './utils.js';
