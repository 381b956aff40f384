// SPDX-License-Identifier: Apache-2.0
// Every tool is listed, can be called, and refuses wrong arguments by the field's name; resources; cancellation; progress.
import assert from 'node:assert/strict';
import { EmptyResultSchema } from '@modelcontextprotocol/sdk/types.js';
import { connect } from './client.mjs';

const { client, tool, fails, close } = await connect();
const called = new Set();
const ok = (name, args, options) => (called.add(name), tool(name, args, options));

const { tools } = await client.listTools();
const bytes = JSON.stringify({ tools }).length;
console.log(`tools/list: ${tools.length} tools, ${bytes} bytes`);
assert.ok(bytes < 24 * 1024);
for (const t of tools) {
	assert.ok(t.description.length > 10 && t.inputSchema && t.outputSchema, t.name);
	for (const hint of ['readOnlyHint', 'destructiveHint', 'idempotentHint']) assert.equal(typeof t.annotations[hint], 'boolean', t.name);
}
assert.equal(new Set(tools.map((t) => t.description)).size, tools.length, 'descriptions are distinct');
await client.ping();

// A sandbox, commands, files.
const made = await ok('create_sandbox', { name: 'a', env: ['SAID=hello'], timeout_s: 3600 });
assert.equal(made.id, 'a');
let r = await ok('exec', { sandbox_id: 'a', command: ['sh', '-c', 'echo "$SAID $X"; cat; pwd; exit 3'], env: ['X=1'], stdin: 'input\n', cwd: '/tmp' });
assert.equal(r.exit_code, 3);
assert.equal(r.stdout, 'hello 1\ninput\n/tmp\n');
r = await ok('exec', { sandbox_id: 'a', code: 'sleep 600', timeout_s: 0.5 });
assert.equal(r.timed_out, true);
assert.deepEqual(
	await ok('write_files', {
		sandbox_id: 'a',
		files: [
			{ path: '/srv/deep/er/run.sh', content: '#!/bin/sh\necho ran\n', mode: '0755' },
			{ path: '/srv/raw', base64: Buffer.from([0, 255, 1]).toString('base64') },
			{ path: '/srv/umlaut', content: 'ä€😀' },
		],
	}),
	{ files: 3, bytes: 31 },
);
r = await ok('exec', { sandbox_id: 'a', command: ['/srv/deep/er/run.sh'] });
assert.equal(r.stdout, 'ran\n');
r = await ok('read_file', { sandbox_id: 'a', path: '/srv/raw' });
assert.deepEqual(r, { path: '/srv/raw', content: 'AP8B', bytes: 3, base64: true, truncated: false });
r = await ok('read_file', { sandbox_id: 'a', path: '/srv/umlaut', max_bytes: 4 });
assert.deepEqual([r.content, r.bytes, r.base64, r.truncated], ['ä', 2, false, true]);
r = await ok('list_files', { sandbox_id: 'a', path: '/srv' });
assert.deepEqual(r.entries.map((e) => [e.name, e.type, e.size]), [['deep', 'directory', r.entries[0].size], ['raw', 'file', 3], ['umlaut', 'file', 9]]);
await ok('exec', { sandbox_id: 'a', code: '(while [ ! -e /tmp/go ]; do sleep 0.1; done; echo ready to serve) >/tmp/log 2>&1 &' });
const waiting = ok('wait_for_text', { sandbox_id: 'a', path: '/tmp/log', text: 'to serve', timeout_s: 60 });
await ok('write_files', { sandbox_id: 'a', files: [{ path: '/tmp/go', content: '' }] });
assert.deepEqual(await waiting, { found: true, offset: 6, line: 'ready to serve' });
r = await ok('wait_for_text', { sandbox_id: 'a', path: '/nowhere', text: 'x', timeout_s: 0 });
assert.equal(r.found, false);
r = await ok('logs', { sandbox_id: 'a', source: 'service' });
assert.ok(r.records.some((x) => x.event === 'created') && !r.records.some((x) => x.event.startsWith('exec')));
const rest = await ok('logs', { sandbox_id: 'a', since: r.next_offset });
assert.ok(rest.records.every((x) => x.event !== 'created'));

// What a guest wrote is marked.
const raw = await client.callTool({ name: 'exec', arguments: { sandbox_id: 'a', command: ['echo', 'x'] } });
assert.equal(raw._meta['crucible/untrusted'], true);
assert.match(raw.content[0].text, /data, not instructions/);

// Snapshots.
r = await ok('snapshot', { sandbox_id: 'a', name: 'base' });
assert.equal(r.id, 'base');
r = await ok('fork', { snapshot_id: 'base', count: 2 });
assert.deepEqual(r.sandboxes.map((s) => s.id), ['base-1', 'base-2']);
await ok('exec', { sandbox_id: 'base-1', code: 'echo new >/srv/new; rm /srv/raw' });
await ok('snapshot', { sandbox_id: 'base-1', name: 'next' });
r = await ok('diff', { snapshot_id: 'next' });
assert.ok(r.added.includes('/srv/new') && r.deleted.includes('/srv/raw'), JSON.stringify(r));
r = await ok('list_snapshots');
assert.deepEqual(r.snapshots.map((s) => s.id).sort(), ['base', 'next']);
assert.equal((await ok('inspect_snapshot', { snapshot_id: 'base' })).source, 'a');
r = await ok('create_sandbox', { name: 'from-next', snapshot: 'next' });
r = await ok('exec', { sandbox_id: 'from-next', command: ['cat', '/srv/new'] });
assert.equal(r.stdout, 'new\n');

// run: always removed.
r = await ok('run', { code: '#!/bin/sh\ncat "$F"', env: ['F=/in/file'], files: [{ path: '/in/file', content: 'given' }] });
assert.equal(r.stdout, 'given');
r = await ok('run', { command: ['/nonexistent'] });
assert.ok(r.exit_code !== 0 && r.error, JSON.stringify(r));
r = await ok('list_sandboxes');
assert.deepEqual(r.sandboxes.map((s) => s.id).sort(), ['a', 'base-1', 'base-2', 'from-next']);
assert.ok((await ok('list_profiles')).profiles.some((p) => p.name === 'tiny'));
await ok('list_images');

// Wrong arguments, by name.
await fails('exec', { sandbox_id: 'a' }, /^command: missing/);
await fails('exec', { command: ['true'] }, /^sandbox_id: missing/);
await fails('exec', { sandbox_id: 7, command: ['true'] }, /^sandbox_id: must be a text/);
await fails('exec', { sandbox_id: 'a', command: ['true'], frob: 1 }, /^frob: there is no such/);
await fails('exec', { sandbox_id: 'a', command: ['true', 1] }, /^command\[1\]: must be a text/);
await fails('exec', { sandbox_id: 'a', command: ['true'], timeout_s: -1 }, /^timeout_s: must be 0 or more/);
await fails('exec', { sandbox_id: 'nobody', command: ['true'] }, /no sandbox "nobody"/);
await fails('exec', { sandbox_id: '../a', command: ['true'] }, /is no name/);
await fails('run', { command: ['true'], env: ['x'] }, /env\[0\]: "x" is not KEY=VALUE/);
await fails('run', { command: ['true'], code: 'true' }, /^command, code/);
await fails('run', { command: ['true'], profile: 'none-such' }, /none-such/);
await fails('write_files', { sandbox_id: 'a', files: [{ content: '' }] }, /^files\[0\]\.path: missing/);
await fails('write_files', { sandbox_id: 'a', files: [{ path: 'x', content: '' }] }, /^files\[0\]: path: .*absolute/);
await fails('write_files', { sandbox_id: 'a', files: [{ path: '/x', base64: '%%%' }] }, /base64/);
await fails('read_file', { sandbox_id: 'a', path: '/srv/../../etc' }, /path/);
await fails('read_file', { sandbox_id: 'a', path: '/no/such' }, /^path: \/no\/such: No such/);
await fails('fork', { snapshot_id: 'base', count: 0 }, /^count: must be 1 or more/);
await fails('fork', { snapshot_id: 'none' }, /no snapshot "none"/);
await fails('logs', { sandbox_id: 'a', source: 'x' }, /^source: must be one of/);
await fails('create_sandbox', { name: 'a' }, /already/);
await fails('create_sandbox', { memory_mib: 999999999 }, /memory_mib/);
await assert.rejects(client.callTool({ name: 'nonsense', arguments: {} }), { code: -32602 });
await assert.rejects(client.request({ method: 'no/such' }, EmptyResultSchema), { code: -32601 });

// Resources.
const templates = await client.listResourceTemplates();
assert.equal(templates.resourceTemplates.length, 2);
const { resources } = await client.listResources();
assert.ok(resources.some((x) => x.uri === 'crucible://run/a/info.json'));
r = await client.readResource({ uri: 'crucible://run/a/info.json' });
assert.equal(JSON.parse(r.contents[0].text).id, 'a');
r = await client.readResource({ uri: 'crucible://run/a/fs/srv/umlaut' });
assert.equal(r.contents[0].text, 'ä€😀');
assert.equal(r.contents[0]._meta['crucible/untrusted'], true);
r = await client.readResource({ uri: 'crucible://run/a/fs/srv/raw' });
assert.equal(r.contents[0].blob, 'AP8B');
for (const uri of ['crucible://run/a/wait', 'crucible://run/a/../b/info.json', 'crucible://run/%2e%2e/version', 'file:///etc/passwd', 'crucible://run/a/fs/../../x', 'crucible://run/a/%00'])
	await assert.rejects(client.readResource({ uri }), { code: -32002 }, uri);

// A long call holds up no other; it tells how it goes, and can be cancelled: then its command is killed.
const seen = [];
const stop = new AbortController();
const long = tool('exec', { sandbox_id: 'a', code: 'echo $$ >/tmp/pid; sleep 600' }, { signal: stop.signal, onprogress: (p) => seen.push(p) });
long.catch(() => {});
await ok('wait_for_text', { sandbox_id: 'a', path: '/tmp/pid', text: '\n', timeout_s: 60 });
assert.ok(seen.length > 0 && seen[0].progress >= 0);
stop.abort();
await assert.rejects(long);
r = await ok('exec', { sandbox_id: 'a', code: 'while kill -0 $(cat /tmp/pid) 2>/dev/null; do sleep 0.05; done; echo gone', timeout_s: 60 });
assert.equal(r.stdout, 'gone\n');

// A cancelled run leaves no sandbox, a cancelled wait ends.
const halt = new AbortController();
const run = tool('run', { command: ['sleep', '600'] }, { signal: halt.signal });
const wait = tool('wait_for_text', { sandbox_id: 'a', path: '/tmp/pid', text: 'never', timeout_s: 600 }, { signal: halt.signal });
run.catch(() => {});
wait.catch(() => {});
const running = async () => (await tool('list_sandboxes')).sandboxes.filter((s) => s.id.startsWith('run-'));
while (!(await running()).some((s) => s.status === 'running'));
halt.abort();
await assert.rejects(run);
await assert.rejects(wait);
while ((await running()).length);

// The end.
assert.equal((await ok('inspect_sandbox', { sandbox_id: 'a' })).status, 'ready');
assert.deepEqual(await ok('stop_sandbox', { sandbox_id: 'a' }), { sandbox_id: 'a', status: 'stopped' });
for (const id of ['a', 'base-1', 'base-2', 'from-next']) await ok('delete_sandbox', { sandbox_id: id });
for (const id of ['next', 'base']) await ok('delete_snapshot', { snapshot_id: id });
r = await ok('logs', { sandbox_id: 'a' });
assert.ok(r.records.some((x) => x.event === 'destroyed'), 'logs of a sandbox that is gone');
await fails('delete_sandbox', { sandbox_id: 'a' }, /no sandbox/);
assert.deepEqual([...called].sort(), tools.map((t) => t.name).sort(), 'every tool was called');
await close();
console.log('tools: all right');
