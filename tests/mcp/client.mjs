// SPDX-License-Identifier: Apache-2.0
// A client of the official SDK against `crucible mcp serve`, for the tests beside this file.
import assert from 'node:assert/strict';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

export async function connect(...flags) {
	const transport = new StdioClientTransport({
		command: process.env.CRUCIBLE,
		args: ['mcp', 'serve', ...flags],
		env: { ...process.env },
	});
	const client = new Client({ name: 'crucible-test', version: '1' });
	client.onerror = (e) => {
		throw e; // a line that is no message
	};
	await client.connect(transport);
	await client.listTools(); // from here on the client checks results against the schemas
	return {
		client,
		pid: transport.pid,
		close: () => client.close(),
		// The structured result of a call that must work.
		async tool(name, args = {}, options = {}) {
			const r = await client.callTool({ name, arguments: args }, undefined, { timeout: 240000, ...options });
			assert.ok(!r.isError, `${name}: ${r.content?.[0]?.text}`);
			assert.deepEqual(JSON.parse(r.content.at(-1).text), r.structuredContent, `${name}: text and structure`);
			return r.structuredContent;
		},
		// The words of a call that must fail.
		async fails(name, args, want) {
			const r = await client.callTool({ name, arguments: args }, undefined, { timeout: 240000 });
			assert.equal(r.isError, true, `${name} ${JSON.stringify(args)} must fail: ${JSON.stringify(r.structuredContent)}`);
			assert.match(r.content[0].text, want, `what ${name} says`);
			return r.content[0].text;
		},
	};
}
