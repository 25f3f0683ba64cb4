// A connection to an agent that plays on the server.

import type { Command, Hello, Step } from "./schema";

const BUSY = 1013; // the server's code for "too many agents play already"
const PATIENCE = 1000; // milliseconds until it is asked again

export interface Listener {
  hello(message: Hello): void;
  step(message: Step): void;
  closed(reason: string): void;
}

export class LivePlayer {
  private socket: WebSocket;
  private over = false;

  constructor(
    private readonly run: string,
    private readonly listener: Listener,
  ) {
    this.socket = this.connect();
  }

  private connect(): WebSocket {
    const address = new URL(`api/play/${this.run}`, location.href);
    address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(address);
    socket.addEventListener("message", (event) => {
      if (this.over) return;
      const message = JSON.parse(String(event.data)) as Hello | Step;
      if ("agent" in message) this.listener.hello(message);
      else this.listener.step(message);
    });
    socket.addEventListener("close", (event) => {
      if (this.over) return;
      this.listener.closed(event.reason);
      if (event.code === BUSY) setTimeout(() => this.over || (this.socket = this.connect()), PATIENCE);
    });
    return socket;
  }

  send(command: Partial<Command>): void {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(command));
  }

  /** Hang up; a connection that is still being made is first made, because a browser would complain. */
  close(): void {
    this.over = true;
    if (this.socket.readyState === WebSocket.CONNECTING)
      this.socket.addEventListener("open", () => this.socket.close());
    else this.socket.close();
  }
}
