// SPDX-License-Identifier: Apache-2.0
// What an agent does: make a machine, put a program and its test into it, run the test, snapshot, try three changes side by
// side in forks, keep the best, clean up.
import assert from 'node:assert/strict';
import { connect } from './client.mjs';

const { tool, close } = await connect();
const { id } = await tool('create_sandbox', {});
await tool('write_files', {
	sandbox_id: id,
	files: [
		{ path: '/work/add.sh', content: 'echo $(($1 - $2))\n' },
		{ path: '/work/test.sh', content: '[ "$(sh /work/add.sh 2 3)" = 5 ] && echo pass\n' },
	],
});
let r = await tool('exec', { sandbox_id: id, command: ['sh', 'test.sh'], cwd: '/work' });
assert.equal(r.exit_code, 1, 'the test finds the fault');
const snap = (await tool('snapshot', { sandbox_id: id })).id;
const forks = (await tool('fork', { snapshot_id: snap, count: 3 })).sandboxes.map((s) => s.id);
const tries = ['echo $(($1 * $2))\n', 'echo $(($1 + $2))\n', 'echo $1$2\n'];
const results = await Promise.all(
	forks.map(async (fork, i) => {
		await tool('write_files', { sandbox_id: fork, files: [{ path: '/work/add.sh', content: tries[i] }] });
		return (await tool('exec', { sandbox_id: fork, command: ['sh', 'test.sh'], cwd: '/work' })).exit_code;
	}),
);
assert.deepEqual(results, [1, 0, 1]);
const best = forks[results.indexOf(0)];
for (const other of [id, ...forks.filter((f) => f !== best)]) await tool('delete_sandbox', { sandbox_id: other });
assert.equal((await tool('read_file', { sandbox_id: best, path: '/work/add.sh' })).content, tries[1]);
await tool('delete_sandbox', { sandbox_id: best });
await tool('delete_snapshot', { snapshot_id: snap });
assert.deepEqual((await tool('list_sandboxes')).sandboxes, []);
await close();
console.log('conversation: all right');
