// SPDX-License-Identifier: Apache-2.0
// The operator's limits: each flag by its effect.
import assert from 'node:assert/strict';
import { connect } from './client.mjs';

// 50 creates at once against a cap of 8.
let s = await connect('--max-sandboxes', '8', '--max-timeout', '2s', '--net-allow-max', '');
const all = await Promise.all(Array.from({ length: 50 }, () => s.client.callTool({ name: 'create_sandbox', arguments: {} })));
const made = all.filter((r) => !r.isError).map((r) => r.structuredContent.id);
assert.equal(made.length, 8);
for (const r of all.filter((x) => x.isError)) assert.match(r.content[0].text, /operator permits 8 sandboxes/);
await s.fails('run', { command: ['true'] }, /operator permits 8/);
for (const id of made.slice(1)) await s.tool('delete_sandbox', { sandbox_id: id });

// Time: more is cut, none too.
for (const args of [{}, { timeout_s: 0 }, { timeout_s: 600 }]) {
	const r = await s.tool('run', { command: ['sleep', '600'], ...args });
	assert.equal(r.timed_out, true);
}
// No network.
await s.fails('run', { command: ['true'], net_allow: ['example.org'] }, /net_allow: "example.org" .*no network/);
await s.fails('create_sandbox', { publish: ['8080:80'] }, /publish: .*no network/);
await s.tool('delete_sandbox', { sandbox_id: made[0] });
await s.close();

// Forks: how many at once, and they count, too.
s = await connect('--max-sandboxes', '4', '--max-fork', '2', '--max-timeout', '1h');
const { id } = await s.tool('create_sandbox', {});
await s.tool('exec', { sandbox_id: id, command: ['true'] });
await s.tool('snapshot', { sandbox_id: id, name: 'limit' });
await s.tool('delete_sandbox', { sandbox_id: id });
await s.fails('fork', { snapshot_id: 'limit', count: 3 }, /count: 3 .*permits 2/);
const fork = () => s.client.callTool({ name: 'fork', arguments: { snapshot_id: 'limit', count: 2 } }, undefined, { timeout: 240000 });
const forks = await Promise.all([fork(), fork(), fork(), fork()]);
assert.equal(forks.filter((r) => !r.isError).length, 2, JSON.stringify(forks.map((r) => r.content[0].text.slice(0, 90))));
const { sandboxes } = await s.tool('list_sandboxes');
assert.equal(sandboxes.length, 4);
assert.equal((await s.tool('inspect_sandbox', { sandbox_id: sandboxes[0].id })).limits.timeout_s, 3600);
for (const x of sandboxes) await s.tool('delete_sandbox', { sandbox_id: x.id });
await s.tool('delete_snapshot', { snapshot_id: 'limit' });
await s.close();

// A list of hosts.
s = await connect('--net-allow-max', 'example.org,*.debian.org,api.test:443,@pypi');
for (const host of ['example.org', 'EXAMPLE.org:80', 'deb.debian.org', '*.a.debian.org', 'api.test:443', '@pypi'])
	await s.tool('delete_sandbox', { sandbox_id: (await s.tool('create_sandbox', { net_allow: [host] })).id });
for (const host of ['debian.org', 'example.com', 'api.test', 'api.test:80', '*', '@npm', 'xexample.org'])
	await s.fails('create_sandbox', { net_allow: ['example.org', host] }, /^net_allow: /);
await s.close();

// Profiles.
s = await connect('--default-profile', 'tiny', '--allow-profiles', 'tiny,other');
await s.fails('run', { command: ['true'], profile: 'base' }, /profile: "base" is not permitted/);
await s.fails('run', { command: ['true'], image: 'x' }, /image: /);
assert.equal((await s.tool('create_sandbox', { name: 'p' })).from, 'profile:tiny');
await s.tool('delete_sandbox', { sandbox_id: 'p' });
assert.deepEqual((await s.tool('list_profiles')).profiles.map((p) => p.name), ['tiny']);
await s.close();

// The first of the permitted ones is the default where none is named as such.
s = await connect('--allow-profiles', 'other,tiny');
await s.fails('run', { command: ['true'] }, /other/);
await s.close();
s = await connect('--allow-profiles', 'other,tiny', '--default-profile', 'tiny');
assert.equal((await s.tool('run', { command: ['echo', 'tiny'] })).stdout, 'tiny\n');
await s.close();
await assert.rejects(connect('--default-profile', 'other')); // there is no such profile

// Tools.
s = await connect('--deny-tools', 'exec,read_file');
let names = (await s.client.listTools()).tools.map((t) => t.name);
assert.ok(names.includes('run') && !names.includes('exec') && !names.includes('read_file'));
await assert.rejects(s.client.callTool({ name: 'exec', arguments: { sandbox_id: 'a', command: ['true'] } }), { code: -32602 });
assert.equal(s.client.getServerCapabilities().resources, undefined);
await s.close();
s = await connect('--tools', 'run,list_profiles');
names = (await s.client.listTools()).tools.map((t) => t.name);
assert.deepEqual(names, ['run', 'list_profiles']);
await s.close();
console.log('limits: all right');
