// The tour: eight steps, in the order of the notebooks; "The way of a token" sums up those before it. `at` is the part
// of the page that a step is about, and is scrolled to; `act` is what the reader may have done for them, and `see` what then is.

/** @typedef {{title: string, at: string, text: string, button?: string, act?: object, see?: string}} Step */

/** @type {Step[]} */
export const steps = [
  {
    title: "Tokens", at: "text",
    text: "The model reads tokens: words and parts of words, each a number, its id in the vocabulary. The text below is cut into them, a line where each begins. A strong tint marks a token that surprised the model. Click one to see what it expected there instead.",
    button: "Show a sentence, with ids", act: { text: "Once upon a time there was a little girl named Lily. She loved to", ids: true }, see: "text-title",
  },
  {
    title: "The next token", at: "next",
    text: "All it does is to give each token of its vocabulary a chance to come next. Temperature 0 always takes the likeliest; higher ones draw among more of them. Write a story and watch it being made of such choices.",
    button: "Write", act: { generate: true }, see: "text-title",
  },
  {
    title: "Averages of the past", at: "attention",
    text: "A token by itself knows nothing of the others. Attention lets it take in an average of what came before. Each row of a picture is one token; the tint says how much it takes from each earlier one. It never looks ahead, so the upper right stays empty.",
    button: "Show a head of layer 0", act: { head: [0, 0] }, see: "large-title",
  },
  {
    title: "Many heads", at: "attention",
    text: "The weights of the average come from the tokens themselves: a query of one meets the keys of the others. Each layer does this several times at once, in heads that look for different things. Some look one token back, some at the beginning, some for the same word earlier.",
    button: "Show a head of layer 2", act: { head: [2, 3] }, see: "large-title",
  },
  {
    title: "The stream", at: "lens",
    text: "Heads and the layers of neurons behind them add to a stream of numbers, one for each token. Read the stream early, as if the model ended there, and you see a guess at the next token get better from layer to layer.",
  },
  {
    title: "The way of a token", at: "flow",
    text: "All of it at once, from left to right, for one token: it becomes a row of numbers, the stream, and each layer adds to it. Below is one layer: its query, made of the stream by LayerNorm, a matrix and a bias, meets the keys of the tokens before it; softmax makes weights of how well they fit; the values, averaged by these, are added to the stream, and then what an MLP makes.",
    button: "Open the numbers of softmax", act: { station: "softmax" }, see: "flow-title",
  },
  {
    title: "Who said so?", at: "parts",
    text: "The last stream is a sum, so the score of a token is a sum too, if the scale of the last LayerNorm is held as it is: this much from each head, that much from each layer of neurons. Strong tints are those that mattered. What one adds may be what another takes away.",
  },
  {
    title: "Take a head away", at: "attention",
    text: "Does a head matter? Switch it off and see what the story loses. Without head 4 of layer 1 this one begins to stammer; without all six heads of layer 2 it loses its thread. The list of changes has each of them, as a link and as the line of C that does it.",
    button: "Switch one head off, and write", act: { text: "Once upon a time there was a little girl named Lily. She loved to", off: [1, 4], generate: true }, see: "text-title",
  },
];
