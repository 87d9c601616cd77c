from rlzoo.cli import main

raise SystemExit(main())
