/** Keys of JSON documents: snake_case there, camelCase in the program. */
export { camelCaseKeys, jsonValue } from './documents.js';
