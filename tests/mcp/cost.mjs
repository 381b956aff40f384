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
// The same file operations by a shell that is running already, turn by turn with the tools: both see the same guest and load.
const shell = spawn(
	'bash',
	[
		'-c',
		`list() { for s in run/*; do read -r _ <"$s/status"; read -r _ <"$s/info.json"; done; }
		exec_() { mkdir run/a/exec/x; echo '{"argv":["true"],"stdin":""}' >run/a/exec/x/cmd; read -r _ <run/a/exec/x/wait; rmdir run/a/exec/x; }
		while read -r what; do t=$EPOCHREALTIME; $what; u=$EPOCHREALTIME; echo $((\${u/./} - \${t/./})); done`,
	],
	{ cwd: process.env.CRUCIBLE_MOUNT, stdio: ['pipe', 'pipe', 'inherit'] },
);
let tell;
createInterface({ input: shell.stdout }).on('line', (line) => tell(Number(line) / 1000));
const by_shell = (what) => new Promise((done) => ((tell = done), shell.stdin.write(what + '\n')));
const by_tool = async (fn) => {
	const t = process.hrtime.bigint();
	await fn();
	return Number(process.hrtime.bigint() - t) / 1e6;
};
const middle = (list) => list.sort((a, b) => a - b)[list.length >> 1];
async function compare(what, rounds, fn) {
	const tool = [], hand = [], more = [];
	for (let i = 0; i < rounds; i++) {
		tool.push(await by_tool(fn));
		hand.push(await by_shell(what));
		more.push(tool[i] - hand[i]);
	}
	console.log(`${what}: tool ${middle(tool).toFixed(3)} ms, shell ${middle(hand).toFixed(3)} ms, difference ${middle(more).toFixed(3)} ms (medians of ${rounds})`);
}

await ask('initialize', { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'cost', version: '1' } });
console.log(`at rest: ${memory()}`);
await ask('tools/list');
await compare('list', 500, () => tool('list_sandboxes', {}));
await compare('exec_', 300, () => tool('exec', { sandbox_id: 'a', command: ['true'] }));
await Promise.all(Array.from({ length: 64 }, () => tool('list_sandboxes', {})));
await Promise.all(Array.from({ length: 16 }, () => tool('exec', { sandbox_id: 'a', command: ['head', '-c', '60000', '/dev/zero'] })));
await tool('write_files', { sandbox_id: 'a', files: [{ path: '/tmp/x', content: 'x'.repeat(1 << 20) }] });
await tool('read_file', { sandbox_id: 'a', path: '/tmp/x' });
console.log(`right after a mixed load: ${memory()}`);
await new Promise((done) => setTimeout(done, 1000)); // a figure, not an assertion
console.log(`a second later: ${memory()}`);
server.stdin.end();
shell.stdin.end();
