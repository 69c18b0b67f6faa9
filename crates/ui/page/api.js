// Calls of the server. A call that fails is thrown as its answer: `message`, `hint`, `code`.

async function answer(response) {
  if (response.status === 401) throw { message: "The server no longer knows this page.", hint: "Open the address that `coracle ui` printed." };
  if (!response.ok) throw { message: await response.text() };
  const json = await response.json();
  if (json.success === false && json.error !== undefined) throw json;
  return json;
}

async function request(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw { message: "The server does not answer.", hint: "Start `coracle ui` again." };
  }
  return answer(response);
}

export const call = (operation, args = {}, session) =>
  request("call", { method: "POST", body: JSON.stringify({ operation, arguments: args, session }) });

export const machines = (anew = false) => request("machines", { method: anew ? "POST" : "GET" });

export const usage = (name) => request(`usage/${name}`);
