// A connection to an agent that plays on the server.

import type { Command, Hello, Step } from "./schema";

export interface Listener {
  hello(message: Hello): void;
  step(message: Step): void;
  closed(reason: string): void;
}

export class LivePlayer {
  private readonly socket: WebSocket;

  constructor(run: string, listener: Listener) {
    const address = new URL(`api/play/${run}`, location.href);
    address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
    this.socket = new WebSocket(address);
    this.socket.addEventListener("message", (event) => {
      const message = JSON.parse(String(event.data)) as Hello | Step;
      if ("agent" in message) listener.hello(message);
      else listener.step(message);
    });
    this.socket.addEventListener("close", (event) => listener.closed(event.reason));
  }

  send(command: Partial<Command>): void {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(command));
  }

  /** Hang up; a connection that is still being made is first made, because a browser would complain. */
  close(): void {
    if (this.socket.readyState === WebSocket.CONNECTING)
      this.socket.addEventListener("open", () => this.socket.close());
    else this.socket.close();
  }
}
