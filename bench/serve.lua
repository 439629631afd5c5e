-- For wrk: streamed chats, each with a seed of its own. The first argument is a file with the instructions that all of
-- them share; its length is what a prefix cache saves.
local shared = ""
local n = 0

function init(args)
   if args[1] then
      local file = assert(io.open(args[1]))
      shared = file:read("a"):gsub("[%c\"\\]", " ")
      file:close()
   end
   n = math.floor(os.clock() * 1e6) % 100000
end

function request()
   n = n + 1
   local body = string.format(
      '{"stream":true,"seed":%d,"max_tokens":%d,"messages":[{"role":"system","content":"%s"},{"role":"user","content":"What is %d + %d?"}]}',
      n, tonumber(os.getenv("TOKENS") or "64"), shared, n % 900, n % 97)
   return wrk.format("POST", "/v1/chat/completions", {["Content-Type"] = "application/json"}, body)
end
