// Package conformance holds clients of dispatchers against the protocol. [Check] starts a client's program as a child
// process against a [Tier], a dispatcher that misbehaves on demand, and watches what the program does.
//
// # The program
//
// It is a worker with the client that is checked. It gets its configuration in the environment:
//
//	ROTA_DISPATCH_URL            where the dispatchers are
//	ROTA_DISPATCH_TOKEN_FILE     has the bearer token, and is replaced while the program runs
//	ROTA_DISPATCH_CA_FILE        has the authority that the program trusts, in PEM
//	ROTA_DISPATCH_KINDS          the kind that it takes
//	ROTA_DISPATCH_WORKER         its name
//	ROTA_DISPATCH_CONCURRENCY    how many keys it works on at the same time
//	ROTA_DISPATCH_GRACE_SECONDS  for how long it finishes keys when it has to stop; then it cuts the work short
//	JOURNAL                      a file to which its handler appends lines
//
// On SIGTERM it takes no more keys, finishes or releases those that it has, and exits with 0.
//
// Its handler appends a line "begin NAME ATTEMPT GONE" to the journal when it begins with a key; GONE is "true" or
// "false". What it does then depends on the key's name:
//
//	ok-…        success
//	fail-N-…    failure, as long as the attempt is N or less; then success
//	after-N-…   success, and the key is to come again after N seconds
//	slow-N-…    success after N seconds
//	stuck-N-…   the same, and it does not hear that its take has ended
//
// Then it appends "end NAME". A slow one that hears that its take has ended, or that it has to stop, stops at once and
// appends "stopped NAME" instead.
package conformance
