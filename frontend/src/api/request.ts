// One request to the server: every outcome is a value, never an exception.

/** Why there is no answer. `status` 0: the server cannot be reached. */
export interface Problem {
  status: number
  message: string
}

export type Answer =
  | { kind: "fresh"; data: unknown; etag: string | null }
  | { kind: "same" }
  | { kind: "failed"; problem: Problem }
  | { kind: "cancelled" }

export const UNREACHABLE = 0
const UNREADABLE = "The server's response cannot be read."

/** Asks for JSON. With the version that one has already, an unchanged answer is not sent again. */
export async function ask(path: string, etag: string | null, signal?: AbortSignal): Promise<Answer> {
  const headers: Record<string, string> = { accept: "application/json" }
  if (etag) headers["if-none-match"] = etag
  try {
    const answer = await fetch(path, { headers, cache: "no-store", ...(signal ? { signal } : {}) })
    const data = await json(answer) // read also where nothing is expected: the browser counts what is not read as aborted
    if (answer.status === 304) return { kind: "same" }
    if (!answer.ok) return failed(answer.status, sentence(data) ?? `The server answered with status ${answer.status}.`)
    return data === undefined
      ? failed(answer.status, UNREADABLE)
      : { kind: "fresh", data, etag: answer.headers.get("etag") }
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") return { kind: "cancelled" }
    return failed(UNREACHABLE, "The server does not answer.")
  }
}

async function json(answer: Response): Promise<unknown> {
  const text = await answer.text() // a connection that breaks here is one that does not answer
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

function sentence(data: unknown): string | null {
  const error = (data as { error?: unknown } | null | undefined)?.error
  return typeof error === "string" ? error : null
}

function failed(status: number, message: string): Answer {
  return { kind: "failed", problem: { status, message } }
}
