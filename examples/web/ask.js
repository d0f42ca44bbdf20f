// The workers, and questions to one of their own, so that the page goes on meanwhile.

/** A worker with a model (worker.js), which is asked one thing at a time. */
export class Helper {
  constructor() {
    this.worker = new Worker(URL.createObjectURL(new Blob([document.getElementById("data-worker").textContent], { type: "text/javascript" })));
    this.asked = { run: 0, reject() {} };
    this.worker.onmessage = ({ data }) => {
      if (data.made) this.asked.onTokens(data);
      else if (data.progress !== undefined) this.asked.onProgress?.(data.progress);
      else if (data.error) this.asked.reject(Object.assign(new Error(data.error), { change: data.change }));
      else this.asked.resolve(data.answer);
    };
    this.worker.onerror = ({ message }) => this.asked.reject(new Error(message));
  }
  ask(task, data, events = {}) {
    return new Promise((resolve, reject) => {
      this.asked = { task, run: this.asked.run + 1, resolve, reject, ...events };
      this.worker.postMessage({ task, run: this.asked.run, ...data });
    });
  }
  /** Lets what it does end early. */
  stop() {
    this.worker.postMessage({ task: "stop", run: this.asked.run });
  }
  end() {
    this.worker.terminate();
    this.asked.reject(new Error("This was stopped."));
  }
}

const PATIENCE = 500; // milliseconds that a question may take to stop
let model = null, helper = null, asking = null, last = Promise.resolve();

function end() {
  helper?.end();
  helper = null;
}
/** What is asked from now on is about another model. @param {object} opened what the worker's "open" takes */
export function askAbout(opened) {
  model = opened;
  end();
}
/** Asks a question when those before it are answered. @param {{command: string, settings: object, files?: object, forms?: string[]}} question
 * @param {(done: number) => void} onProgress @returns {Promise<object>} as the worker's "query" */
export function put(question, onProgress) {
  const turn = last.then(async () => {
    asking = question;
    try {
      if (question.isLeft) throw new Error("This was stopped.");
      if (!helper) {
        helper = new Helper();
        await helper.ask("open", model).catch((error) => {
          end();
          throw error;
        });
      }
      return await helper.ask("query", question, { onProgress });
    } finally {
      asking = null;
    }
  });
  last = turn.catch(() => {});
  return turn;
}
/** Stops a question. It gives what is known so far, or fails. */
export function leave(question) {
  question.isLeft = true;
  if (asking !== question) return;
  helper.stop();
  setTimeout(() => asking === question && end(), PATIENCE);
}
