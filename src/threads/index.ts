/** Independent tasks on worker threads. */
export { runTasks, type TaskOptions, type TaskRunner } from './pool.js';
