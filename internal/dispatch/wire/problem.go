package wire

// ProblemBase is the prefix of the types of problems.
const ProblemBase = "https://rota.dev/problems/"

// Problem is the body of each error answer (RFC 9457).
type Problem struct {
	// Type is ProblemBase followed by one of the constants below.
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail describes what is wrong with this request, and what to do.
	Detail string `json:"detail,omitempty"`
}

// Types of problems, without ProblemBase.
const (
	// ProblemInvalid (400): the request cannot be read, a field is wrong, or a token was not made by a dispatcher of the
	// tier.
	ProblemInvalid = "invalid"
	// ProblemUnauthenticated (401): there is no valid bearer token for the audience of the dispatchers.
	ProblemUnauthenticated = "unauthenticated"
	// ProblemForbidden (403): the user may not take keys of a kind, or the take is another user's.
	ProblemForbidden = "forbidden"
	// ProblemUnknownKind (404): the dispatchers do not serve the kind.
	ProblemUnknownKind = "unknown-kind"
	// ProblemNotFound (404): there is no such path.
	ProblemNotFound = "not-found"
	// ProblemMethod (405): the path takes another method.
	ProblemMethod = "method"
	// ProblemEnded (410): the take or the stream has ended. A take was done or released, it expired, or its dispatcher has
	// ended. Stop the work, since another worker may have the key.
	ProblemEnded = "ended"
	// ProblemTimeout (408): the body did not come in time. The request was not carried out.
	ProblemTimeout = "timeout"
	// ProblemTooLarge (413): the body has more than MaxBody bytes.
	ProblemTooLarge = "too-large"
	// ProblemMediaType (415): the body is not TypeJSON.
	ProblemMediaType = "media-type"
	// ProblemTooMany (429): the client sends more requests than it may, or has too many in flight. The header Retry-After
	// is the number of seconds to wait.
	ProblemTooMany = "too-many"
	// ProblemUnavailable (503): the dispatcher, or the one that has the take, cannot answer now. Try again after the time
	// in the header Retry-After. A Done may or may not have been carried out.
	ProblemUnavailable = "unavailable"
)
