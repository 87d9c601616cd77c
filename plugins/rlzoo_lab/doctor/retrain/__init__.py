"""`rlzoo doctor RUN --retrain`: which difference from the recipe harms a run, by experiment.

May import the doctor, which reads runs, and the sweep, which trains them.

    command      the arguments of `rlzoo doctor`, and the table
    experiments  the retrainings, how they are judged, and the finding
"""
