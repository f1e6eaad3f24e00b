// Score rows with a model in onnxruntime-node: node onnx_node.js MODEL N_FEATURES < float32 rows.
// NODE_PATH has the folder of the package. Scores are written as float32, too.
const fs = require("fs");
const ort = require("onnxruntime-node");

async function main(model, width) {
  const bytes = fs.readFileSync(0);
  const values = new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
  const options = {intraOpNumThreads: 1, interOpNumThreads: 1};
  const session = await ort.InferenceSession.create(model, options);
  const features = new ort.Tensor("float32", values, [values.length / width, width]);
  const {scores} = await session.run({features});
  process.stdout.write(Buffer.from(scores.data.buffer, scores.data.byteOffset, scores.data.byteLength));
}

main(process.argv[2], Number(process.argv[3])).catch((error) => {
  console.error(error);
  process.exit(1);
});
