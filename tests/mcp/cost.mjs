// SPDX-License-Identifier: Apache-2.0
// See cost.sh. Speaks the protocol itself: what the SDK costs is not ours.
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

const server = spawn(process.env.CRUCIBLE, ['mcp', 'serve'], { stdio: ['pipe', 'pipe', 'inherit'] });
const waiting = new Map();
createInterface({ input: server.stdout }).on('line', (line) => {
	const m = JSON.parse(line);
	waiting.get(m.id)(m.result);
});
let id = 0;
const ask = (method, params = {}) =>
	new Promise((done) => {
		waiting.set(++id, done);
		server.stdin.write(JSON.stringify({ jsonrpc: '2.0', id, method, params }) + '\n');
	});
const tool = (name, args) => ask('tools/call', { name, arguments: args });
const memory = () => {
	const text = readFileSync(`/proc/${server.pid}/status`, 'utf8');
	const kib = (key) => Number(text.match(new RegExp(`${key}:\\s+(\\d+)`))[1]);
	return `VmRSS ${kib('VmRSS')} KiB (anonymous ${kib('RssAnon')}), VmHWM ${kib('VmHWM')} KiB`;
};
async function median(what, rounds, fn) {
	const ms = [];
	for (let i = 0; i < rounds; i++) {
		const t = process.hrtime.bigint();
		await fn();
		ms.push(Number(process.hrtime.bigint() - t) / 1e6);
	}
	ms.sort((a, b) => a - b);
	console.log(`mcp ${what}: median ${ms[rounds >> 1].toFixed(3)} ms`);
}

await ask('initialize', { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'cost', version: '1' } });
console.log(`at rest: ${memory()}`);
await ask('tools/list');
await median('ping', 200, () => ask('ping'));
await median('list', 200, () => tool('list_sandboxes', {}));
await median('command', 200, () => tool('exec', { sandbox_id: 'a', command: ['true'] }));
await Promise.all(Array.from({ length: 64 }, () => tool('list_sandboxes', {})));
await Promise.all(Array.from({ length: 16 }, () => tool('exec', { sandbox_id: 'a', command: ['head', '-c', '60000', '/dev/zero'] })));
await tool('write_files', { sandbox_id: 'a', files: [{ path: '/tmp/x', content: 'x'.repeat(1 << 20) }] });
await tool('read_file', { sandbox_id: 'a', path: '/tmp/x' });
console.log(`right after a mixed load: ${memory()}`);
await new Promise((done) => setTimeout(done, 1000)); // a figure, not an assertion
console.log(`a second later: ${memory()}`);
server.stdin.end();
