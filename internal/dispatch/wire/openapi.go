package wire

import _ "embed" // OpenAPI

// OpenAPI describes this version of the protocol as a document of OpenAPI 3.1, in JSON. Dispatchers serve it at
// PathOpenAPI.
//
//go:embed openapi.json
var OpenAPI string
