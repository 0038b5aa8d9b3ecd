package group_test

import (
	"fmt"

	"github.com/rota-dev/rota/group"
)

// One Deployment runs garbage collection, another one everything else.
func ExampleParse() {
	known := []string{"garbage", "quota", "jobs", "-debug"} // debug is off by default
	heavy, err := group.Parse("janitor", known, "garbage")
	if err != nil {
		panic(err)
	}
	rest, err := group.Parse("janitor", known, "*", "-garbage")
	if err != nil {
		panic(err)
	}
	for _, name := range []string{"garbage", "quota", "debug"} {
		fmt.Println(name, heavy.Runs(name), rest.Runs(name))
	}
	_, err = group.Parse("janitor", known, "gabrage")
	fmt.Println(err)
	// Output:
	// garbage true false
	// quota false true
	// debug false false
	// pattern "gabrage": janitor has no controller of that name; the nearest is garbage
}
