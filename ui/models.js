// A server with several models says so in its /props: then one can be chosen, the choice is kept, and answers are asked of it by
// name. A server with one model is not asked for any.

// The properties of the chosen model, or of the one that is meant where none is named.
async function readProps() {
    const first = await (await call('/props')).json(), name = store.model();
    if (name === first.model_alias || !first.models?.includes(name)) return first;
    return (await call('/props?model=' + encodeURIComponent(name))).json();
}

function showModels() {
    const names = server.models ?? [];
    $('model').replaceChildren(...names.map((name) => h('option', {value: name}, name)));
    $('model').value = server.model_alias;
    $('model').hidden = names.length < 2;
    $('server-text').hidden = names.length > 1;
}

const askedModel = () => (server.models ? {model: server.model_alias} : {});
