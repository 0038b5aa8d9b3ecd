package streamtest

import "github.com/rota-dev/rota/internal/delivery/stream"

// hold0 begins with slot 0, or 0 and 1, held and listed.
const (
	hold0 = "hold set=01\nbegin\ncommit\n"
	hold2 = "hold set=11\nbegin\ncommit\n"
)

// Scopes are the worlds that are searched, the smallest first.
var Scopes = []Scope{
	{
		Name: "behind", About: "slots are lost and gained while the watch lags",
		Names: 1, Config: stream.Config{Slots: 2},
		Begin: hold0, Changes: 3, Limits: Limits{hold: 2},
	},
	{
		Name: "renew", About: "slots are listed again, in the middle of a list too",
		Names: 1, Config: stream.Config{Slots: 1},
		Begin: hold0, Changes: 3, Limits: Limits{renew: 2},
	},
	{
		Name: "namesake", About: "a namesake comes in another slot",
		Names: 1, Config: stream.Config{Slots: 2, Namesakes: true},
		Begin: hold0, Changes: 3, Limits: Limits{hold: 1},
	},
	{
		Name: "move", About: "an object changes its owner while a slot is gained or lost",
		Names: 1, Config: stream.Config{Slots: 2, Moves: true},
		Begin: hold0, Changes: 3, Limits: Limits{hold: 1},
	},
	{
		Name: "again", About: "slots are listed while an object goes through them",
		Names: 1, Config: stream.Config{Slots: 2, Moves: true},
		Begin: "create name=0 slot=0 label=0\n" + hold0, Changes: 2, Limits: Limits{hold: 1, renew: 1},
	},
	{
		Name: "look", About: "look-ups are ahead of the stream, or behind",
		Names: 1, Config: stream.Config{Slots: 1, Selects: true},
		Begin: hold0, Changes: 4, Limits: Limits{hold: 1, ask: 2}, Wrong: true,
	},
	{
		Name: "whole", About: "the whole is listed while a slot is gained",
		Names: 1, Config: stream.Config{Slots: 2, Moves: true},
		Begin: hold0, Changes: 2, Limits: Limits{hold: 1, begin: 1}, More: 2,
	},
	{
		Name: "behind2", About: "as behind, with another name",
		Names: 2, Config: stream.Config{Slots: 2},
		Begin: hold0, Changes: 4, Limits: Limits{hold: 2, renew: 1}, Long: true,
	},
	{
		Name: "namesake2", About: "as namesake, with more changes",
		Names: 1, Config: stream.Config{Slots: 2, Namesakes: true},
		Begin: hold0, Changes: 5, Limits: Limits{hold: 3, reopen: 1}, Long: true,
	},
	{
		Name: "move2", About: "as move, with more changes",
		Names: 1, Config: stream.Config{Slots: 2, Moves: true},
		Begin: hold0, Changes: 4, Limits: Limits{hold: 2, reopen: 1}, Nowhere: true, Long: true,
	},
	{
		Name: "move3", About: "as move, with a third slot",
		Names: 1, Config: stream.Config{Slots: 3, Moves: true},
		Begin: hold0, Changes: 4, Limits: Limits{hold: 2}, Long: true,
	},
	{
		Name: "look2", About: "as look, of namesakes in two slots",
		Names: 1, Config: stream.Config{Slots: 2, Selects: true, Namesakes: true},
		Begin: hold0, Changes: 4, Limits: Limits{hold: 1, ask: 2}, Long: true,
	},
	{
		Name: "lookmove", About: "as look, of objects that change their owners",
		Names: 1, Config: stream.Config{Slots: 2, Selects: true, Moves: true},
		Begin: hold0, Changes: 4, Limits: Limits{hold: 1, ask: 2}, Wrong: true, Long: true,
	},
	{
		Name: "looklist", About: "look-ups while slots are listed again",
		Names: 1, Config: stream.Config{Slots: 2, Selects: true, Moves: true},
		Begin: hold2, Changes: 4, Limits: Limits{renew: 1, ask: 2}, Long: true,
	},
	{
		Name: "wholes", About: "the whole is listed again",
		Names: 1, Config: stream.Config{Slots: 2, Selects: true, Moves: true},
		Begin: hold0, Changes: 3, Limits: Limits{hold: 2, begin: 2, ask: 2}, More: 3, Wrong: true, Long: true,
	},
	{
		Name: "two", About: "two names, and everything else",
		Names: 2, Config: stream.Config{Slots: 2, Selects: true, Moves: true, Namesakes: true},
		Begin: hold0, Changes: 4, Limits: Limits{hold: 2, renew: 1, begin: 1, ask: 2, reopen: 1}, More: 2,
		Wrong: true, Nowhere: true, Long: true,
	},
}
