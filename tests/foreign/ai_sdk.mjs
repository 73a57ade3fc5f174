// The AI SDK over the three APIs: a text, a stream, a tool with a picture in its result.
// `node ai_sdk.mjs URL TOKEN`, in a folder whose node_modules have `ai` and its providers.
import assert from "node:assert/strict";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const [url, token] = process.argv.slice(2);
const model = "agent/default";
const baseURL = `${url}/v1`;
const openai = createOpenAI({ baseURL, apiKey: token });
const models = [
    openai.chat(model),
    openai.responses(model),
    createAnthropic({ baseURL, apiKey: token })(model),
    createOpenAICompatible({ name: "palyra", baseURL, apiKey: token })(model),
];
const PIXEL =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const look = tool({
    description: "A picture of a place.",
    inputSchema: z.object({ place: z.string() }),
    execute: async () => PIXEL,
    toModelOutput: () => ({
        type: "content",
        value: [
            { type: "text", text: "here" },
            { type: "media", data: PIXEL, mediaType: "image/png" },
        ],
    }),
});
for (const each of models) {
    assert.equal((await generateText({ model: each, prompt: "/say one" })).text, "one");
    let streamed = "";
    for await (const part of streamText({ model: each, prompt: "/say two words" }).textStream) {
        streamed += part;
    }
    assert.equal(streamed, "two words");
    const made = await generateText({
        model: each,
        tools: { look },
        stopWhen: stepCountIs(3),
        prompt: '/call look {"place": "Oslo"}\n/then\n/say seen',
    });
    assert.equal(made.steps[0].toolCalls.length, 1);
}
