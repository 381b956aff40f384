// SPDX-License-Identifier: Apache-2.0
// See cost.sh. Speaks the protocol itself: what the SDK costs is not ours.
import { spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

// Lines to a child's standard input, lines from its standard output.
function talk(command, args, on_line) {
	const child = spawn(command, args, { cwd: process.env.CRUCIBLE_MOUNT, stdio: ['pipe', 'pipe', 'inherit'] });
	createInterface({ input: child.stdout }).on('line', on_line);
	return child;
}

const waiting = new Map();
const server = talk(process.env.CRUCIBLE, ['mcp', 'serve'], (line) => {
	const m = JSON.parse(line);
	waiting.get(m.id)(m);
	waiting.delete(m.id);
});
let id = 0;
const ask = (method, params = {}) =>
	new Promise((done, failed) => {
		waiting.set(++id, (m) => (m.error || m.result.isError ? failed(new Error(JSON.stringify(m).slice(0, 300))) : done(m.result)));
		server.stdin.write(JSON.stringify({ jsonrpc: '2.0', id, method, params }) + '\n');
	});
const tool = (name, args) => ask('tools/call', { name, arguments: args });

// -- memory
const memory = () => {
	const text = readFileSync(`/proc/${server.pid}/status`, 'utf8');
	const kib = (key) => Number(text.match(new RegExp(`${key}:\\s+(\\d+)`))[1]);
	return `VmRSS ${kib('VmRSS')} KiB (anonymous ${kib('RssAnon')}), VmHWM ${kib('VmHWM')} KiB`;
};
const forget_peak = () => writeFileSync(`/proc/${server.pid}/clear_refs`, '5');

// -- time: the same file operations by programs that are running already and start none. Turn by turn with the tools, so both see
// the same guest and load, and both asked over a pair of pipes, so both pay for that.
let told;
const hand = (command, args) => {
	const child = talk(command, args, () => told());
	return { ask: (what) => new Promise((done) => ((told = done), child.stdin.write(what + '\n'))), end: () => child.stdin.end() };
};
const bash = hand('bash', [
	'-c',
	`list() { for s in run/*; do read -r _ <"$s/info.json"; read -r _ <"$s/status"; done; }
	write() { printf '%s' "$text" >run/a/fs/tmp/y; }
	take() { IFS= read -rd '' _ <run/a/fs/tmp/x; }
	printf -v text '%1000s' ''
	while read -r what; do $what; echo; done`,
]);
// mkdir and rmdir are processes in a shell.
const perl = hand('perl', [
	'-e',
	`$| = 1;
	while (<STDIN>) {
		mkdir "run/a/exec/x" or die "mkdir: $!";
		open(my $cmd, ">", "run/a/exec/x/cmd") or die "cmd: $!";
		print $cmd '{"argv":["true"],"stdin":""}';
		close($cmd) or die "cmd: $!";
		open(my $wait, "<", "run/a/exec/x/wait") or die "wait: $!";
		my $record = <$wait>;
		close($wait);
		rmdir "run/a/exec/x" or die "rmdir: $!";
		print "\\n";
	}`,
]);
const timed = async (fn) => {
	const t = process.hrtime.bigint();
	await fn();
	return Number(process.hrtime.bigint() - t) / 1e6;
};
const middle = (list) => [...list].sort((a, b) => a - b)[list.length >> 1];
const figure = (list) => middle(list).toFixed(3);
async function compare(name, rounds, by_tool, by_hand) {
	const t = [], h = [], more = [];
	for (let i = -10; i < rounds; i++) {
		// Each goes first every other time: what one leaves behind, a slot that is being removed, the next one meets.
		const first = i & 1 ? await timed(by_hand) : await timed(by_tool);
		const second = i & 1 ? await timed(by_tool) : await timed(by_hand);
		const [a, b] = i & 1 ? [second, first] : [first, second];
		if (i < 0) continue;
		t.push(a);
		h.push(b);
		more.push(a - b);
	}
	console.log(`${name}: tool ${figure(t)} ms, by hand ${figure(h)} ms, difference ${figure(more)} ms (medians of ${rounds})`);
}

await ask('initialize', { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'cost', version: '1' } });
console.log(`at rest: ${memory()}`);
await ask('tools/list');
const KIB = 'x'.repeat(1000);
await tool('write_files', { sandbox_id: 'a', files: [{ path: '/tmp/x', content: KIB }] });
await compare('list_sandboxes', 500, () => tool('list_sandboxes', {}), () => bash.ask('list'));
await compare('write_files, 1 kB', 300, () => tool('write_files', { sandbox_id: 'a', files: [{ path: '/tmp/y', content: KIB }] }), () => bash.ask('write'));
await compare('read_file, 1 kB', 300, () => tool('read_file', { sandbox_id: 'a', path: '/tmp/x' }), () => bash.ask('take'));
await compare('exec true', 200, () => tool('exec', { sandbox_id: 'a', command: ['true'] }), () => perl.ask(''));
bash.end();
perl.end();

await Promise.all(Array.from({ length: 64 }, () => tool('list_sandboxes', {})));
await Promise.all(Array.from({ length: 16 }, () => tool('exec', { sandbox_id: 'a', command: ['head', '-c', '60000', '/dev/zero'] })));
console.log(`after a mixed load: ${memory()}`);

const MIB = 1 << 20;
const raw = Buffer.from(Array.from({ length: MIB }, (_, i) => (i * 37) & 255)).toString('base64');
for (const [what, file] of [['text', { content: ('x'.repeat(63) + '\n').repeat(MIB / 64) }], ['binary', { base64: raw }]]) {
	forget_peak();
	for (let i = 0; i < 10; i++) {
		await tool('write_files', { sandbox_id: 'a', files: [{ path: '/tmp/big', ...file }] });
		await tool('read_file', { sandbox_id: 'a', path: '/tmp/big' });
	}
	console.log(`while ten files of 1 MiB (${what}) went in and came back: ${memory()}`);
}
forget_peak();
await Promise.all(Array.from({ length: 16 }, () => tool('read_file', { sandbox_id: 'a', path: '/tmp/big' })));
console.log(`while sixteen of them came at once: ${memory()}`);
await new Promise((done) => setTimeout(done, 1000)); // a figure, not an assertion
console.log(`a second later: ${memory()}`);
server.stdin.end();
